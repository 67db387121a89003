#!/bin/sh
# `python` and `python3` as a start script sees them: the next one on PATH, with unchanged arguments.
# Only `-m torch.distributed.run|launch` (or the file itself) goes to shim.py, which looks closer.
# A shell without forks, since every Python of the script comes by here. docs/protocols/launcher.md
IFS=:
set -f
for name in "${0##*/}" python3; do # an image without `python` keeps the one it has
    for directory in $PATH; do
        real=$directory/$name
        if [ -x "$real" ] && [ -f "$real" ] && ! [ "$directory" -ef "${0%/*}" ]; then
            case "$*" in
            *torch[./]distributed[./]* | *torch_npu[./]distributed[./]*)
                exec "$real" "${0%/bin/*}/shim.py" "$name" "$@"
                ;;
            esac
            exec "$real" "$@"
        fi
    done
done
echo "hajob: there is no ${0##*/} on PATH" >&2
exit 127
