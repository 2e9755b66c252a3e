# Functions for the scripts in the guest: talk to the host, plug units, wait for the kernel, run cases.

# shellcheck shell=bash
exec 7<>/dev/ttyS1
mkfifo /run/never
exec 6<>/run/never
stty -F /dev/ttyS1 raw -echo 115200
cd /mnt || exit
# The guest has no home folder.
export ASMPATCH_BACKUP_DIR=.

# host REQUEST...: sends the host a request (rig.sh, host_*) and prints its answer.
host() {
  local status reply
  printf '%s\n' "$*" >&7
  read -r status reply <&7
  [ "$status" = 0 ] || { echo "the host could not $*:"; base64 -d <<<"${reply:-}"; return "$status"; } >&2
  base64 -d <<<"${reply:-}"
}

say() { printf 'say %s\n' "$*" >&7; }

# until_true SECONDS COMMAND...: repeats a command until it succeeds. Under emulation each new process costs the host
# much time. So this function starts none, and neither do the checks of ports below.
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    if ((SECONDS >= end)); then echo "not within the time: $*"; return 1; fi
    # Nothing ever writes there.
    read -rt 0.1 -u 6 || true
  done
}

# Bash ignores a failing `! command` under errexit.
refute() { if "$@"; then return 1; fi; }

# Sets `port` to asmpatch's name of a port, and `device` to the sysfs folder of its device. Ports 0 to 7 are on the
# first controller's SuperSpeed bus. n is on the second controller, which has no streams. h is the port of the hub that
# switches power. o0 and up are the single ports of the other controllers.
locate() {
  case $1 in
    n) port=${superspeed_buses[1]}-1 ;;
    # The hub is at the last port of the first controller's USB 2 bus, which comes before its SuperSpeed bus.
    h) port=$((superspeed_buses[0] - 1))-9.1 ;;
    o*) port=${superspeed_buses[2 + ${1#o}]}-1 ;;
    *) port=${superspeed_buses[0]}-$(($1 + 1)) ;;
  esac
  device=/sys/bus/usb/devices/$port
}
device_of() { locate "$1"; printf '%s' "$device"; }

# Prints the bus numbers of the controllers' SuperSpeed root hubs, in order.
list_superspeed_buses() {
  local hub
  for hub in /sys/bus/usb/devices/usb*; do
    if [ "$(cat "$hub/speed")" -ge 5000 ]; then cat "$hub/busnum"; fi
  done | sort -n
}

# The same port of the first controller at high speed, on its USB 2 bus, which comes before the SuperSpeed bus.
high_speed_port_of() { printf '%s-%s' "$((superspeed_buses[0] - 1))" "$(($1 + 1))"; }

# Whether the hub's port has power.
hub_port_is_on() {
  local port device is_off
  locate h
  port=${port%.1}
  read -r is_off <"/sys/bus/usb/devices/$port/$port:1.0/$port-port1/disable"
  [ "$is_off" = 0 ]
}

port_path() { local port device; locate "$1"; printf '%s' "$port"; }
is_bound() { local port device; locate "$1"; [ -e "/sys/bus/usb/drivers/$2/$port:1.0" ]; }
is_gone() { local port device; locate "$1"; ! [ -e "$device" ]; }
has_id() {
  local port device vendor product
  locate "$1"
  read -r vendor <"$device/idVendor" && read -r product <"$device/idProduct" && [ "$vendor:$product" = "$2" ]
}
# The SCSI generic node and the disk of a port's unit, while the kernel's driver has it.
sg_of() { local node; for node in "$(device_of "$1")"/*:1.0/host*/target*/*/scsi_generic/sg*; do [ -e "$node" ] && printf '/dev/%s' "${node##*/}"; done; }
disk_of() { local node; for node in "$(device_of "$1")"/*:1.0/host*/target*/*/block/sd*; do [ -e "$node" ] && printf '/dev/%s' "${node##*/}"; done; }
has_sg() { local port device; locate "$1"; compgen -G "$device/*:1.0/host*/target*/*/scsi_generic/sg*" >/dev/null; }
has_disk() { local port device; locate "$1"; compgen -G "$device/*:1.0/host*/target*/*/block/sd*" >/dev/null; }

# Keep the kernel from asking a full-speed device for the descriptor of its other speed: open firmware leaves that
# request unanswered, which costs 5 s.
printf 'add1:0001:i,3801:0001:i' >/sys/module/usbcore/parameters/quirks

# unit NAME [TOML]: makes a new virtual unit with this scenario file.
unit() {
  host unit "$1" >/dev/null
  if [ -n "${2:-}" ]; then host file "$1" bridge.toml "$(base64 -w 0 <<<"$2")"; fi
}

plug() { host plug "$@"; }
plain() { host plain "$@"; }
unplug() { host unplug "$1"; until_true 20 is_gone "$1"; }

# replug PORT UNIT: cycles the unit's power, then waits until the kernel's driver has the restarted unit.
replug() {
  host replug "$2"
  until_true 20 is_bound "$1" uas
}

# in_boot_loader UNIT: asks the server, because the unit's identity doesn't show it.
in_boot_loader() { host serverlog "$1" | grep 'plugged in as' | tail -n 1 | grep -q '(boot loader)'; }

# The boot loader answers nothing before a port reset, and the kernel's driver repeats its INQUIRY: 20 s each time,
# which would be most of the run.
echo 2 >/sys/module/scsi_mod/parameters/inq_timeout

passed=0
failed=0
# run_case NAME: runs the function of this name in a subshell and reports the result.
run_case() {
  local log=/mnt/log.$1 began=$EPOCHREALTIME took
  [[ $1 =~ ${only:-} ]] || return 0
  # Not as a condition, in which bash would ignore errexit.
  (set -e; "$1") >"$log" 2>&1 </dev/null
  local status=$?
  took=$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
  if [ "$status" = 0 ]; then
    passed=$((passed + 1))
    say "ok     $1 (${took} s)"
  else
    failed=$((failed + 1))
    say "FAILED $1 (${took} s)"
    tail -n 60 "$log" | while IFS= read -r line; do say "       | $line"; done
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
