function _pipeline_completion
    set -lx _PIPELINE_COMPLETE fish_complete
    set -lx COMP_WORDS (commandline -cp)
    set -lx COMP_CWORD (commandline -t)
    set -l words (commandline -opc)
    command $words[1] 2>/dev/null
end
complete --no-files --command pipeline --arguments "(_pipeline_completion)"
complete --no-files --command posttrain-pipeline --arguments "(_pipeline_completion)"
