# Cases of restarts: each level of `reset`, and what `flash` does after both kinds of CPU reset.

# shellcheck shell=bash

# Cuts the power of the unit at the hub while the hub's port is off, because QEMU's hub doesn't. Then writes the file
# `switched`.
follow_power() {
  until_true 90 refute hub_port_is_on
  host power off
  until_true 20 hub_port_is_on
  host power on
  touch switched
}

# behind_hub COMMAND...: runs a command, and cuts the unit's power when the hub does.
behind_hub() {
  local follower status=0
  rm -f switched
  follow_power >follower.log 2>&1 &
  follower=$!
  "$@" || status=$?
  kill "$follower" 2>/dev/null || true
  wait "$follower" || true
  cat follower.log
  return "$status"
}

# resets PORT [OPTION...]: resets the unit at a port, and leaves the report in reset.json.
resets() {
  local port=$1 status=0
  shift
  "$asmpatch" reset --device "$(port_path "$port")" --json "$@" >reset.json 2>reset.err || status=$?
  cat reset.err >&2
  cat reset.json
  # The hub at port h is slow itself: nothing else may be left there.
  [ "$status" = 0 ] || { [ "$port$status" = h4 ] && grep -q "didn't help: its link is at 12 Mbit/s$" reset.err; }
}

# tried LEVEL...: checks the levels that the last reset tried.
tried() { [ "$(sed -n 's/.*"level": "\(.*\)",/\1/p' reset.json | tr '\n' ' ')" = "$* " ]; }
helped() { grep -q "\"helped\": \"$1\"" reset.json; }
gpu_is_back() { grep -q '"1002:744C at 04:00.0"' reset.json; }

# open_at PORT UNIT IMAGE [TOML]: plugs in a new unit with open firmware.
open_at() {
  chip_unit "$2" "$3" "${4:-}"
  plug "$1" "$2"
  until_true 20 test -e "$(device_of "$1")/product"
}

address_of() { cat "$(device_of "$1")/devnum"; }

# Control requests are still answered.
reset_strobes_bulk_pipes_that_hang_and_the_unit_stays_on_the_bus() {
  local address
  open_at 4 hangs open 'bulk-hangs = "strobes"'
  address=$(address_of 4)
  "$examples/control" "$(port_path 4)" read e4 f000 0 4
  resets 4
  tried engines
  helped engines
  [ "$(address_of 4)" = "$address" ]
  "$examples/open_rate" "$(port_path 4)" f0-write 4096 1024 4
  unplug 4
}

reset_goes_on_to_the_cpu_where_strobes_and_pcie_power_do_not_help() {
  local address
  open_at 4 hangs open 'bulk-hangs = "cpu-reset"'
  address=$(address_of 4)
  resets 4
  tried engines pcie-power cpu
  helped cpu
  gpu_is_back
  [ "$(address_of 4)" != "$address" ]
  "$examples/open_rate" "$(port_path 4)" f0-write 4096 1024 4
  unplug 4
}

reset_goes_on_to_the_hubs_power_where_a_cpu_reset_does_not_help() {
  open_at h hangs open 'bulk-hangs = "power"
speed = "high"'
  behind_hub resets h
  test -e switched
  tried engines pcie-power cpu port-power
  helped port-power
  gpu_is_back
  unplug h
}

# QEMU's root hubs switch no power.
reset_says_what_did_not_help_where_no_hub_switches_power() {
  open_at 4 hangs open 'bulk-hangs = "power"'
  fails_with 4 reset::not_helped "$asmpatch" reset --device "$(port_path 4)"
  grep -q 'no hub on its way can switch its power' out
  grep -q 'there is no terminal on which to ask you to unplug it' out
  unplug 4
}

# Restarts by register 0xCC31. Memory that the firmware doesn't use shows whether the chip started from its flash.
level_cpu_restarts_open_firmware_with_the_code_kept_and_with_the_code_loaded() {
  local kind
  for kind in keeps-code loads-code; do
    open_at 4 restarts open "cpu-reset = \"$kind\"
$starts_over"
    "$examples/control" "$(port_path 4)" write e5 6800 005a
    [ "$("$examples/control" "$(port_path 4)" read e4 6800 0 1)" = 5a ]
    resets 4 --level cpu
    tried cpu
    gpu_is_back
    if [ "$kind" = keeps-code ]; then
      [ "$("$examples/control" "$(port_path 4)" read e4 6800 0 1)" = 5a ]
    else
      [ "$("$examples/control" "$(port_path 4)" read e4 6800 0 1)" != 5a ]
    fi
    unplug 4
  done
}

each_level_does_only_what_it_says_on_open_firmware() {
  local address level
  open_at h levels open 'speed = "high"'
  address=$(address_of h)
  for level in engines pcie-power; do
    resets h --level "$level"
    tried "$level"
    [ "$(address_of h)" = "$address" ]
  done
  gpu_is_back
  behind_hub resets h --level port-power
  test -e switched
  tried port-power
  gpu_is_back
  unplug h
}

vendor_firmware_knows_the_cpu_and_the_hubs_power_and_no_other_level() {
  local level
  chip_unit levels stock "speed = \"high\"
$starts_over"
  plug_chip h levels uas
  host serverlog levels >before
  for level in engines pcie-power; do
    fails_with 5 reset::no_such_level "$asmpatch" reset --level "$level" --device "$(port_path h)"
  done
  host serverlog levels >after
  cmp before after
  is_bound h uas
  resets h --level cpu
  tried cpu
  until_true 20 is_bound h uas
  behind_hub resets h --level port-power
  test -e switched
  tried port-power
  until_true 20 is_bound h uas
  unplug h
}

# The kernel's driver gets no answer either, and holds the unit while it waits.
reset_says_that_the_bulk_pipes_of_vendor_firmware_hang_and_goes_on_to_the_hubs_power() {
  chip_unit stuck stock "bulk-hangs = \"power\"
speed = \"high\"
$starts_over"
  plug h stuck
  until_true 20 test -e "$(device_of h)/product"
  behind_hub resets h
  test -e switched
  grep -q '"kind": "bulk"' reset.json
  tried cpu port-power
  helped port-power
  until_true 20 is_bound h uas
  unplug h
}

# No command halted the unit, but only a power cycle restarts it.
the_hubs_power_restarts_a_unit_in_its_boot_loader() {
  unit empty 'factory = "no-image"
speed = "high"'
  plug h empty
  until_true 20 test -e "$(device_of h)/product"
  fails_with 5 reset::no_firmware "$asmpatch" reset --device "$(port_path h)"
  behind_hub resets h --level port-power
  test -e switched
  tried port-power
  unplug h
}

# at_terminal COMMAND: starts a command line at a terminal of its own, as `running`. Descriptor 5 is its keyboard, and
# the file `typescript` its screen.
at_terminal() {
  mkdir -p /dev/pts
  mountpoint -q /dev/pts || mount -t devpts devpts /dev/pts
  rm -f typescript keyboard
  mkfifo keyboard
  script -qefc "$1" typescript <keyboard >/dev/null &
  running=$!
  exec 5>keyboard
}

# Checks that the command at the terminal succeeds.
has_answered() {
  local status=0
  wait "$running" || status=$?
  exec 5>&-
  cat typescript
  [ "$status" = 0 ]
}

level_cable_asks_at_a_terminal_and_waits_for_the_unit() {
  local running
  open_at 4 pulled open
  at_terminal "$asmpatch reset --level cable --device $(port_path 4)"
  until_true 20 grep -q 'take the cable out' typescript
  host replug pulled
  has_answered
  grep -q 'back as ADD1:0001' typescript
  unplug 4
}

# The link goes down during the survey of PCIe, as with a GPU that crashes. F3 cuts the GPU's power.
reset_brings_a_gpu_back_whose_link_was_lost_by_pcie_power() {
  local address image
  for image in open newest; do
    [ -e "$images/$image.bin" ] || continue
    open_at 4 crashed "$image" 'pcie-link-lost-after = 4'
    address=$(address_of 4)
    "$asmpatch" pcie --device "$(port_path 4)" || true
    resets 4
    grep -q '"kind": "pcie-link"' reset.json
    tried pcie-power
    helped pcie-power
    gpu_is_back
    [ "$(address_of 4)" = "$address" ]
    "$asmpatch" pcie --device "$(port_path 4)" | grep -q '1002:744c'
    unplug 4
  done
}

# --- what flash does after a CPU reset -------------------------------------------------------------------------------

# flashes PORT IMAGE [OPTION...]: flashes an image to the unit at a port, and leaves the report in flash.json.
flashes() {
  local port=$1 image=$2
  shift 2
  "$asmpatch" flash "$image" --device "$(port_path "$port")" --yes --unproven --json "$@" >flash.json || { cat flash.json; return 1; }
  cat flash.json
}
runs() { grep -q "\"runs\": \"$1\"" flash.json; }
needs_nothing() { refute grep -q '"needs"' flash.json; }
switches_power() { grep -q '"step": "power-cycle"' flash.json && [ -e switched ]; }
switches_no_power() { refute grep -q '"step": "power-cycle"' flash.json && [ ! -e switched ] && hub_port_is_on; }

# The unit is behind the hub that can switch its power. E4 of 256 bytes shows which code runs.
after_a_cpu_reset_flash_switches_the_power_of_vendor_firmware_only_if_the_old_code_answers() {
  local kind
  unit source
  plug 5 source
  until_true 20 is_bound 5 uas
  rm -rf source.backup
  "$asmpatch" backup --device "$(port_path 5)" -o source.backup
  unplug 5
  "$asmpatch" patch source.backup/firmware.bin --patch e4-length-16 -o longer.bin --force
  for kind in loads-code keeps-code; do
    unit reset "cpu-reset = \"$kind\"
speed = \"high\"
$starts_over"
    plug h reset
    until_true 20 is_bound h uas
    behind_hub flashes h longer.bin
    runs written
    needs_nothing
    if [ "$kind" = loads-code ]; then switches_no_power; else switches_power; fi
    unplug h
  done
}

# Restarts by 0xCC31. The product string shows which build runs.
after_a_cpu_reset_flash_switches_the_power_of_open_firmware_only_if_the_old_code_answers() {
  local kind
  for kind in loads-code keeps-code; do
    open_at h reset open "cpu-reset = \"$kind\"
speed = \"high\"
$starts_over"
    behind_hub flashes h "$images/newest.bin"
    runs written
    needs_nothing
    if [ "$kind" = loads-code ]; then switches_no_power; else switches_power; fi
    has_id h 3801:0001
    holds reset newest
    unplug h
  done
}

# No hub switches the unit's power, and a user is at the terminal.
after_a_cpu_reset_that_keeps_the_code_flash_asks_for_the_cable() {
  local running
  open_at 4 asked open "$starts_over"
  at_terminal "$asmpatch flash $images/newest.bin --device $(port_path 4)"
  until_true 60 grep -q 'y/N' typescript
  echo y >&5
  until_true 120 grep -q 'starts after a power cycle' typescript
  host replug asked
  until_true 120 grep -q 'Run a self-test now' typescript
  echo n >&5
  has_answered
  grep -q 'it runs what was written' typescript
  has_id 4 3801:0001
  unplug 4
}

reset_cases=(
  the_hubs_power_restarts_a_unit_in_its_boot_loader
  after_a_cpu_reset_flash_switches_the_power_of_vendor_firmware_only_if_the_old_code_answers
)
if [ -e "$images/stock.bin" ]; then
  reset_cases+=(
    vendor_firmware_knows_the_cpu_and_the_hubs_power_and_no_other_level
    reset_says_that_the_bulk_pipes_of_vendor_firmware_hang_and_goes_on_to_the_hubs_power
  )
fi
if [ -e "$images/open.bin" ]; then
  reset_cases+=(
    reset_strobes_bulk_pipes_that_hang_and_the_unit_stays_on_the_bus
    reset_goes_on_to_the_cpu_where_strobes_and_pcie_power_do_not_help
    reset_goes_on_to_the_hubs_power_where_a_cpu_reset_does_not_help
    reset_says_what_did_not_help_where_no_hub_switches_power
    reset_brings_a_gpu_back_whose_link_was_lost_by_pcie_power
    level_cpu_restarts_open_firmware_with_the_code_kept_and_with_the_code_loaded
    each_level_does_only_what_it_says_on_open_firmware
    level_cable_asks_at_a_terminal_and_waits_for_the_unit
  )
fi
if [ -e "$images/open.bin" ] && [ -e "$images/newest.bin" ]; then
  reset_cases+=(
    after_a_cpu_reset_flash_switches_the_power_of_open_firmware_only_if_the_old_code_answers
    after_a_cpu_reset_that_keeps_the_code_flash_asks_for_the_cable
  )
fi
