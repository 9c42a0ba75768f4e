# Completion of mqkv for bash 4.4 or later, as printed by `mqkv completions bash`.

_mqkv() {
    local answer
    COMPREPLY=()
    mapfile -t answer < <(command mqkv __complete bash "$COMP_WORDBREAKS" "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    set -- "$2" ${answer[0]}
    case $2 in
        words) COMPREPLY=("${answer[@]:1}") ;;
        files) compopt -o default ;;
        directories) compopt -o dirnames ;;
        command)
            if declare -F _command_offset >/dev/null; then
                _command_offset "$3"
            elif ((COMP_CWORD == $3)); then
                mapfile -t COMPREPLY < <(compgen -c -- "$1")
            else
                compopt -o default
            fi
            ;;
    esac
}

complete -F _mqkv mqkv
