# bash completion for installer, slipway and imager: made by `installer completions bash`.

# What a verb takes: its verbs; its flags, FLAG:KIND, or FLAG=:KIND if the value must be in the same word; the kinds of
# its arguments, the last of them any number of times if `*` follows.
_slipway_table() {
    case $1 in
    # THE TABLE
    esac
}

# The words up to the cursor as the program will get them: neither `=` nor `:` ends a word.
_slipway_words() {
    local at piece rest=${COMP_LINE:0:COMP_POINT}
    words=()
    for ((at = 0; at <= COMP_CWORD; at++)); do
        piece=${COMP_WORDS[at]}
        ((at < COMP_CWORD)) || piece=${rest#"${rest%%[![:space:]]*}"}
        if ((at > 0)) && [[ $rest != [[:space:]]* ]]; then
            words[-1]+=$piece
        else
            words+=("$piece")
        fi
        rest=${rest#"${rest%%[![:space:]]*}"}
        rest=${rest#"$piece"}
    done
}

# The kind of a flag's value, in $kind: _slipway_kind FLAG [=]
_slipway_kind() {
    local flag
    kind=''
    for flag in "${flags[@]}"; do
        [[ $flag != "$1:"* && (${2-} != '=' || $flag != "$1=:"*) ]] || kind=${flag#*:}
    done
}

_slipway_disks() {
    local disk
    for disk in /dev/disk/by-id/*; do
        [[ ! -e $disk || $disk = *-part[0-9]* ]] || printf '%s\n' "$disk"
    done
    for disk in /sys/block/*; do
        case ${disk##*/} in
        '*' | loop* | ram* | zram* | sr* | fd* | dm-*) ;;
        *) printf '/dev/%s\n' "${disk##*/}" ;;
        esac
    done
}

# What can be in place of a word: _slipway_value KIND WORD
_slipway_value() {
    local kind=$1 word=$2 action=-d
    case $kind in
    words:*) mapfile -t COMPREPLY < <(compgen -W "${kind#words:}" -- "$word") ;;
    file | directory)
        [[ $kind = directory ]] || action=-f
        mapfile -t COMPREPLY < <(compgen "$action" -- "$word")
        compopt -o filenames 2>/dev/null
        ;;
    source | layout | disk-or-source | disk)
        if [[ $kind != disk && $word = @(dir|oci|oci-archive):* ]]; then
            [[ $word != oci-archive:* ]] || action=-f
            mapfile -t COMPREPLY < <(compgen "$action" -- "${word#*:}")
            COMPREPLY=("${COMPREPLY[@]/#/${word%%:*}:}")
            compopt -o filenames 2>/dev/null
            return
        fi
        case $kind in
        source | disk-or-source)
            mapfile -t COMPREPLY < <(compgen -W 'dir: oci: oci-archive: docker://' -- "$word")
            ;;
        layout) mapfile -t COMPREPLY < <(compgen -W oci: -- "$word") ;;
        esac
        if [[ $kind = disk* ]]; then
            mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W "$(_slipway_disks)" -- "$word")
            # Neither terminals nor partitions.
            [[ ($word = /dev/* && $word != /dev/*/*) || $word = /dev/disk/by-id/* ]] || action=-f
            mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen "$action" -- "$word")
            compopt -o filenames 2>/dev/null
        fi
        [[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != *[:/] ]] || compopt -o nospace 2>/dev/null
        ;;
    esac
}

_slipway() {
    local words verbs flags places path=${1##*/} word cur kind='' place=0 breaks=''
    COMPREPLY=()
    _slipway_words
    cur=${words[-1]}
    [[ $path = imager ]] || path=installer
    _slipway_table "$path"
    for word in "${words[@]:1:${#words[@]}-2}"; do
        if [[ $kind ]]; then
            kind=''
            continue
        fi
        case $word in
        --*=*) ;;
        -*) _slipway_kind "$word" ;;
        *)
            if [[ " $verbs " = *" $word "* ]]; then
                path+=" $word"
                _slipway_table "$path"
            else
                place=$((place + 1))
            fi
            ;;
        esac
    done
    if [[ ! $kind && $cur = --*=* ]]; then
        _slipway_kind "${cur%%=*}" =
        _slipway_value "$kind" "${cur#*=}"
        COMPREPLY=("${COMPREPLY[@]/#/${cur%%=*}=}")
    elif [[ ! $kind && $cur = -* ]]; then
        verbs=${flags[*]%%:*}
        mapfile -t COMPREPLY < <(compgen -W "${verbs//=/}" -- "$cur")
    elif [[ ! $kind && $verbs ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$verbs" -- "$cur")
    else
        [[ $kind ]] || kind=${places[place]-}
        [[ $kind && $kind != '*' ]] || { [[ ${places[*]} != *'*' ]] || kind=${places[-2]}; }
        _slipway_value "$kind" "$cur"
    fi
    # Of the word, readline replaces what is behind the last of these.
    [[ $COMP_WORDBREAKS != *=* ]] || breaks+='='
    [[ $COMP_WORDBREAKS != *:* ]] || breaks+=':'
    [[ ! $breaks ]] || word=${cur%"${cur##*["$breaks"]}"}
    [[ ! $breaks ]] || COMPREPLY=("${COMPREPLY[@]#"$word"}")
}

complete -F _slipway installer slipway imager
