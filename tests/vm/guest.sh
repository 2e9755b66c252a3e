# What the scripts in the guest share: talking to the host, plugging units, waiting for what udev would tell, running cases.

# shellcheck shell=bash
exec 7<>/dev/ttyS1
stty -F /dev/ttyS1 raw -echo 115200
cd /mnt || exit
# There is no home folder here.
export ASMPATCH_BACKUP_DIR=.

# host REQUEST...: asks the host (rig.sh, host_*); prints its answer.
host() {
  local status reply
  printf '%s\n' "$*" >&7
  read -r status reply <&7
  [ "$status" = 0 ] || { echo "the host could not $*:"; base64 -d <<<"${reply:-}"; return "$status"; } >&2
  base64 -d <<<"${reply:-}"
}

say() { printf 'say %s\n' "$*" >&7; }

# until_true SECONDS COMMAND...: tries a command until it holds.
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    if ((SECONDS >= end)); then echo "not within the time: $*"; return 1; fi
    sleep 0.1
  done
}

# Bash lets `! command` pass under errexit.
refute() { if "$@"; then return 1; fi; }

# The sysfs folder of a port's device. Ports 0 to 7 are those of the first controller's SuperSpeed bus, n is the one of the
# second, which has no streams, and o0 and on are the only ones of the others.
device_of() {
  case $1 in
    n) printf '/sys/bus/usb/devices/%s-1' "${superspeed_buses[1]}" ;;
    o*) printf '/sys/bus/usb/devices/%s-1' "${superspeed_buses[2 + ${1#o}]}" ;;
    *) printf '/sys/bus/usb/devices/%s-%s' "${superspeed_buses[0]}" "$(($1 + 1))" ;;
  esac
}

# The numbers of the controllers' SuperSpeed root hubs, in order.
list_superspeed_buses() {
  local hub
  for hub in /sys/bus/usb/devices/usb*; do
    if [ "$(cat "$hub/speed")" -ge 5000 ]; then cat "$hub/busnum"; fi
  done | sort -n
}

# The same port of the first controller at high speed: its USB 2 bus is the one before.
high_speed_port_of() { printf '%s-%s' "$((superspeed_buses[0] - 1))" "$(($1 + 1))"; }

# What asmpatch calls the port.
port_path() { basename "$(device_of "$1")"; }
driver_of() { basename "$(readlink "$(device_of "$1")/$(basename "$(device_of "$1")"):1.0/driver")"; }
is_bound() { [ "$(driver_of "$1")" = "$2" ]; }
is_gone() { ! [ -e "$(device_of "$1")" ]; }
has_id() { [ "$(cat "$(device_of "$1")/idVendor"):$(cat "$(device_of "$1")/idProduct")" = "$2" ]; }
# The SCSI generic node and the disk of a port's unit, when the kernel's driver has them.
sg_of() { local node; for node in "$(device_of "$1")"/*:1.0/host*/target*/*/scsi_generic/sg*; do [ -e "$node" ] && printf '/dev/%s' "${node##*/}"; done; }
disk_of() { local node; for node in "$(device_of "$1")"/*:1.0/host*/target*/*/block/sd*; do [ -e "$node" ] && printf '/dev/%s' "${node##*/}"; done; }
has_sg() { [ -n "$(sg_of "$1")" ]; }
has_disk() { [ -n "$(disk_of "$1")" ]; }

# unit NAME [TOML]: a new virtual unit, with what its scenario file says.
unit() {
  host unit "$1" >/dev/null
  if [ -n "${2:-}" ]; then host file "$1" bridge.toml "$(base64 -w 0 <<<"$2")"; fi
}

plug() { host plug "$@"; }
plain() { host plain "$@"; }
unplug() { host unplug "$1"; until_true 20 is_gone "$1"; }

# replug PORT UNIT: the unit loses its power and gets it back; then the kernel's driver has what its flash holds.
replug() {
  host replug "$2"
  until_true 20 is_bound "$1" uas
}

# in_boot_loader UNIT: its identity is no sign, the server says it.
in_boot_loader() { host serverlog "$1" | grep 'plugged in as' | tail -n 1 | grep -q '(boot loader)'; }

# The boot loader answers nothing before its port is reset, and the kernel's driver asks it for INQUIRY data again and
# again: 20 s each time would be most of the run.
echo 2 >/sys/module/scsi_mod/parameters/inq_timeout

passed=0
failed=0
# run_case NAME: runs the function of this name, apart, and reports it.
run_case() {
  local log=/mnt/log.$1 began=$EPOCHREALTIME took
  [[ $1 =~ ${only:-} ]] || return 0
  # Not as a condition: inside one, bash ignores errexit.
  (set -e; "$1") >"$log" 2>&1 </dev/null
  local status=$?
  took=$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
  if [ "$status" = 0 ]; then
    passed=$((passed + 1))
    say "ok     $1 (${took} s)"
  else
    failed=$((failed + 1))
    say "FAILED $1 (${took} s)"
    tail -n 40 "$log" | while IFS= read -r line; do say "       | $line"; done
    dmesg | tail -n 15 | while IFS= read -r line; do say "       dmesg | $line"; done
  fi
}

finish() {
  say "$passed passed, $failed failed"
  printf 'done\n' >&7
  exec 7>&-
}

mkdir -p /mnt/home
until_true 20 test -e "/sys/bus/usb/devices/usb$((2 * controllers))"
mapfile -t superspeed_buses < <(list_superspeed_buses)
