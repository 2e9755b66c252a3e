# Cases with other makers' docks: the USB IDs that asmpatch accepts as units, through Linux's USB stack.

# shellcheck shell=bash

# identified_as NAME VID PID: writes a patch file that gives a unit this USB ID, in a folder of its own.
identified_as() {
  mkdir -p "$1"
  cat >"$1/$1.toml" <<TOML
id = "$1"
title = "Enumerate as $2:$3"
purpose = "Another maker's USB ID."
source = "None: the case needs a unit under this ID."
default = true
[config]
vendor-id = 0x$2
product-id = 0x$3
TOML
}

# renamed PORT NAME VID PID [OPTION...]: gives the unit at a port this USB ID with asmpatch, and waits for it there.
renamed() {
  local port=$1 name=$2 vid=$3 pid=$4
  shift 4
  identified_as "$name" "$vid" "$pid"
  "$asmpatch" patch named/firmware.bin --patch-dir "$name" --no-defaults --patch "$name" -o "$name.bin" --force
  "$asmpatch" flash "$name.bin" --patch-dir "$name" --device "$(port_path "$port")" --yes --unproven "$@"
  until_true 20 has_id "$port" "${vid,,}:${pid,,}"
  until_true 20 is_bound "$port" uas
}

# asmpatch knows the maker's ID, so it needs no option.
a_dock_under_its_makers_id_is_listed_by_its_name_and_backed_up() {
  unit named "serial = \"DOCK0000011\"
$starts_over"
  plug 6 named
  until_true 20 is_bound 6 uas
  "$asmpatch" backup --device "$(port_path 6)" -o named
  until_true 10 is_bound 6 uas
  renamed 6 owc 1E91 DE79
  "$asmpatch" list >listed
  cat listed
  grep -q "$(port_path 6): 1E91:DE79 OWC Express 1M2" listed
  "$asmpatch" backup --device "$(port_path 6)" -o owc-backup
  [ "$(sum owc-backup/config-0.bin)" = "$(host sum named flash.bin 0 128)" ]
  until_true 10 is_bound 6 uas
}

# An unknown ID: no command opens the unit or sends it anything until an option names the ID.
a_dock_under_an_id_that_is_not_known_is_left_alone_until_it_is_named() {
  local word
  renamed 6 other 1234 2464 --usb-id 1234:2464
  host serverlog named >before
  "$asmpatch" list --probe >listed
  cat listed
  refute grep -q 1234:2464 listed
  for word in backup reset pcie 'bench --path e4-255' 'config get' doctor 'flash other.bin --patch-dir other --yes'; do
    # shellcheck disable=SC2086
    fails_with 4 device::unknown_id "$asmpatch" $word --device "$(port_path 6)"
  done
  is_bound 6 uas
  host serverlog named >after
  cmp before after
  "$asmpatch" list --usb-id 1234:2464 >listed
  cat listed
  grep -q "$(port_path 6): 1234:2464 named by --usb-id" listed
  "$asmpatch" backup --device "$(port_path 6)" --usb-id 1234:2464 -o other-backup
  [ "$(sum other-backup/config-0.bin)" = "$(host sum named flash.bin 0 128)" ]
  until_true 10 is_bound 6 uas
  "$asmpatch" restore named --device "$(port_path 6)" --usb-id 1234:2464 --yes --unproven
  until_true 20 has_id 6 174c:2464
  unplug 6
}

ids_cases=(
  a_dock_under_its_makers_id_is_listed_by_its_name_and_backed_up
  a_dock_under_an_id_that_is_not_known_is_left_alone_until_it_is_named
)
