_pipeline_completion() {
    local -a found folders
    local word
    for word in "${(@f)$(COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) \
        _PIPELINE_COMPLETE=zsh_complete ${words[1]} 2>/dev/null)}"; do
        case $word in
            "") ;;
            */) folders+=("$word") ;;
            *) found+=("$word") ;;
        esac
    done
    (( $#found )) && compadd -U -Q -- $found
    (( $#folders )) && compadd -U -Q -S '' -- $folders
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -u }
compdef _pipeline_completion pipeline posttrain-pipeline
