# Functions of the tests of the packages.

fail() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }
step() { printf '  %s\n' "$*"; }

# expect WHAT EXPECTED COMMAND...: the command prints this.
expect() {
  local what=$1 expected=$2 actual
  shift 2
  actual=$("$@") || fail "$what: exit code $?"
  [ "$actual" = "$expected" ] || fail "$what: expected '$expected', found '$actual'"
}

# expect_code WHAT CODE COMMAND...: the command exits with this code.
expect_code() {
  local what=$1 expected=$2 actual=0
  shift 2
  "$@" >/dev/null 2>&1 || actual=$?
  [ "$actual" = "$expected" ] || fail "$what: expected the exit code $expected, found $actual"
}

# Mounts devices of its own on a folder. Programs that run containers change the owner of /dev/null: not that of this machine.
mount_devices() {
  mount -t tmpfs -o mode=755 tmpfs "$1"
  local device
  for device in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
    # shellcheck disable=SC2046
    mknod -m 666 "$1/${device%%:*}" c $(cut -d : -f 2- <<<"$device" | tr : ' ')
  done
  mkdir "$1/shm" "$1/pts"
  mount -t tmpfs tmpfs "$1/shm"
  mount -t devpts -o newinstance,ptmxmode=0666 devpts "$1/pts"
  ln -s pts/ptmx "$1/ptmx"
  ln -s /proc/self/fd "$1/fd"
}
