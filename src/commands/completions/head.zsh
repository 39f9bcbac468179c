#compdef installer slipway imager
# zsh completion for installer, slipway and imager: made by `installer completions zsh`.

_slipway_source() {
    if compset -P '(dir|oci):'; then
        _files -/
    elif compset -P 'oci-archive:'; then
        _files
    elif compset -P 'docker:'; then
        _message 'docker://HOST/REPOSITORY[:TAG][@DIGEST]'
    else
        compadd -S '' -- dir: oci: oci-archive: docker://
    fi
}

_slipway_layout() {
    if compset -P 'oci:'; then
        _files -/
    else
        compadd -S '' -- oci:
    fi
}

_slipway_disk() {
    setopt localoptions extendedglob
    local -a names disks
    names=(/sys/block/^(loop|ram|zram|sr|fd|dm-)*(N:t))
    disks=(/dev/disk/by-id/^*-part<->(N) /dev/${^names})
    local ret=1
    compadd -a disks && ret=0
    # Neither terminals nor partitions.
    if [[ $PREFIX = /dev/[^/]# || $PREFIX = /dev/disk/by-id/* ]]; then
        _path_files -/ && ret=0
    else
        _files && ret=0
    fi
    return ret
}

_slipway_disk_or_source() {
    local ret=1
    _slipway_source && ret=0
    [[ $IPREFIX = *: ]] && return ret
    _slipway_disk && ret=0
    return ret
}

# THE TABLE
_installer() {
    case $service in
    (imager) _slipway_imager ;;
    (*) _slipway_installer ;;
    esac
}

if [[ $funcstack[1] = _installer ]]; then
    _installer "$@"
else
    compdef _installer installer slipway imager
fi
