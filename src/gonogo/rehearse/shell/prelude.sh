# Read by bash before each script that gonogo runs. The session writes three variables before this text:
# __gonogo_session (its folder), __gonogo_mkdir and __gonogo_cp (the real programs).

# Where a path is kept in the session, whose folder `files` mirrors the root folder.
__gonogo_place() {
    case "$1" in
        /*) printf '%s' "$__gonogo_session/files$1" ;;
        *) printf '%s' "$__gonogo_session/files$PWD/$1" ;;
    esac
}

# The file that an output redirection goes to.
__gonogo_write() {
    case "$*" in
        '' | - | /dev/* | /proc/self/fd/* | [0-9] | [0-9][0-9] | "$__gonogo_session"/*) printf '%s' "$*"; return ;;
    esac
    local place folder
    place=$(__gonogo_place "$*")
    case "$*" in
        */*) folder="${*%/*}/" ;;
        *) folder=./ ;;
    esac
    if [ ! -d "$folder" ] && [ ! -d "$(__gonogo_place "$folder")" ]; then
        printf '%s' "$*"  # bash then says that there is no such folder, as it would in a real run
        return
    fi
    "$__gonogo_mkdir" -p -- "${place%/*}"
    if [ ! -e "$place" ] && [ -f "$*" ]; then
        "$__gonogo_cp" -- "$*" "$place"  # for >>, and for <>
    fi
    printf '%s' "$place"
}

# The file that is read: the session's, where the script has written it.
__gonogo_read() {
    local place
    place=$(__gonogo_place "$*")
    if [ -f "$place" ]; then
        printf '%s' "$place"
    else
        printf '%s' "$*"
    fi
}

__gonogo_source() {
    "$__gonogo_session/bin/__gonogo_source" "$@"
}

__gonogo_rewrite() {
    "$__gonogo_session/bin/__gonogo_rewrite" "$*"
}

__gonogo_not_run() {
    printf '%s\037' "$@" >>"$__gonogo_session/not_run"
    printf '\036' >>"$__gonogo_session/not_run"
}

# A command whose name holds a folder or an expansion.
__gonogo_run() {
    [ "$#" -gt 0 ] || return 0
    case "$1" in
        "$__gonogo_session"/bin/*) "$@" ;;
        */*) "$__gonogo_session/bin/__gonogo_path" "$@" ;;
        *) "$@" ;;
    esac
}

__gonogo_exec() {
    while [ "$#" -gt 0 ]; do
        case "$1" in
            -a) shift 2 ;;
            -[cl] | -cl | -lc) shift ;;
            *) break ;;
        esac
    done
    __gonogo_run "$@"
    exit
}

command_not_found_handle() {
    __gonogo_not_run "$@"
}

sleep() { :; }
kill() { __gonogo_not_run kill "$@"; }

mkdir() {
    local word
    __gonogo_not_run mkdir "$@"
    for word in "$@"; do
        case "$word" in
            -*) ;;
            *) "$__gonogo_mkdir" -p -- "$(__gonogo_place "$word")" ;;
        esac
    done
}

# Programs that only read: they find what the script has written before.
__gonogo_reader() {
    local name="$1" word
    local -a words=()
    shift
    case "$name $*" in
        "tail -f"* | "tail -F"* | tail*" -f"* | tail*" -F"* | tail*" --follow"*)
            __gonogo_not_run "$name" "$@"  # it never ends
            return
            ;;
        awk*print*'>'* | gawk*print*'>'* | awk*system* | gawk*system* | sort*' -o'* | sort*' --output'*)
            __gonogo_not_run "$name" "$@"  # it writes a file, or runs a command
            return
            ;;
    esac
    for word in "$@"; do
        case "$word" in
            -* | '') words+=("$word") ;;
            *) words+=("$(__gonogo_read "$word")") ;;
        esac
    done
    "$__gonogo_session/bin/$name" ${words[@]+"${words[@]}"}
}

# Programs that start another: they have to find the stand-ins first, whatever the script has done to PATH.
__gonogo_starter() {
    PATH="$__gonogo_session/bin/:$PATH" "$__gonogo_session/bin/$1" "${@:2}"
}
