_pipeline_completion() {
    local IFS=$'\n' word
    COMPREPLY=()
    while read -r word; do
        COMPREPLY+=("$word")
        [[ $word == */ ]] && compopt -o nospace 2>/dev/null
    done < <(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD \
        _PIPELINE_COMPLETE=bash_complete "$1" 2>/dev/null)
}
complete -F _pipeline_completion pipeline posttrain-pipeline
