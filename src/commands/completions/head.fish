# fish completion for installer, slipway and imager: made by `installer completions fish`.

set -l names -c installer -c slipway

# Whether the words before the cursor lead to these verbs, and no further: __slipway_at [VERB]...
function __slipway_at
    set -l words (commandline -opc)
    set -l at
    for word in $words[2..-1]
        set -l further (string join ' ' -- $at $word)
        if contains -- $further # THE VERBS
            set at $further
        end
    end
    test "$at" = "$argv"
end

# The word at the cursor; of a flag with its value, the value.
function __slipway_word
    commandline -ct | string replace -r -- '^--[a-z-]+=' ''
end

# Files and directories that a word can become; directories end with a slash.
function __slipway_files
    complete -C "'' $argv" | string replace -r -- '\t.*' ''
end

function __slipway_sources
    set -l parts (string split -m 1 -- : (__slipway_word))
    if not set -q parts[2]
        printf '%s\n' dir: oci: oci-archive: docker://
        return
    end
    set -l paths
    switch $parts[1]
        case dir oci
            set paths (__slipway_files $parts[2] | string match -- '*/')
        case oci-archive
            set paths (__slipway_files $parts[2])
    end
    for path in $paths
        echo $parts[1]:$path
    end
end

function __slipway_disks
    set -l word (__slipway_word)
    string match -q -r -- '^[a-z-]+:' $word; and return
    set -l disks /dev/disk/by-id/*
    string match -v -r -- '-part\d+$' $disks
    set -l names /sys/block/*
    string replace /sys/block/ /dev/ -- $names | string match -v -r -- '^/dev/(loop|ram|zram|sr|fd|dm-)'
    # Neither terminals nor partitions.
    if string match -q -r -- '^/dev/([^/]*|disk/by-id/.*)$' $word
        __slipway_files $word | string match -- '*/'
    else
        __slipway_files $word
    end
end

# THE TABLE
