# Completion of mqkv for fish, as printed by `mqkv completions fish`.

function __mqkv_complete
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    # Without its quotes and backslashes, where it is whole without them.
    set -l current (string unescape -- "$typed"; or echo -- "$typed")
    set -l answer (command mqkv __complete fish $words[2..] "$current" 2>/dev/null)
    set -l kind (string split ' ' -- "$answer[1]")
    switch "$kind[1]"
        case words
            string join \n -- $answer[2..]
        case files directories
            set -l kept (string sub -l $kind[2] -- "$current")
            set -l prefix (string sub -s (math $kind[2] + 1) -- "$current")
            set -l complete __fish_complete_path
            test $kind[1] = directories; and set complete __fish_complete_directories
            for path in ($complete "$prefix")
                echo -- "$kept$path"
            end
        case command
            set -l command $words[(math $kind[2] + 1)..]
            complete -C (string join ' ' -- (string escape -- $command) "$typed")
    end
end

complete -c mqkv -f -a '(__mqkv_complete)'
