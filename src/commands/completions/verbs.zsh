%NAME%() {
    local curcontext=$curcontext state state_descr line ret=1
    typeset -A opt_args
    _arguments -C -S : \
        %LINES% && ret=0
    case $state in
    (verb)
        local -a verbs=(
            %VERBS%
        )
        _describe -t verbs verb verbs && ret=0
        ;;
    (rest)
        words=($line[1] "${words[@]}")
        ((CURRENT += 1))
        case $line[1] in
        %CASES%
        esac
        ;;
    esac
    return ret
}

