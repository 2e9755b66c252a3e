# Cases with faults on the wire and asmpatch in the guest: each fault ends in an error, and the next command works.

# shellcheck shell=bash

# faults OPCODE EACH KIND...: prints a scenario in which the EACHth command with this opcode meets the first fault, the
# EACHth after it the second, and so on.
faults() {
  local opcode=$1 each=$2 nth=0 kind
  shift 2
  for kind in "$@"; do
    nth=$((nth + each))
    printf '[[fault]]\nkind = "%s"\nopcode = %s\nnth = %s\n' "$kind" "$opcode" "$nth"
  done
}

# A bench sends seven E4 to learn the version and what has set up the unit, and goes on if they get no answer. Its
# eighth asks for more than 255 bytes. A short answer to it means that there is no extension; any other fault ends the
# bench.
bench_asks=8

# fails_with STATUS CODE COMMAND...: checks that the command ends with this exit status and an error with this code.
fails_with() {
  local expected=$1 code=$2 status=0
  shift 2
  "$@" >out 2>err || status=$?
  cat out err
  [ "$status" = "$expected" ]
  grep -q "$code" err
}

each_fault_over_bulk_only_ends_in_an_error_and_the_next_command_works() {
  local code
  unit wire "$(faults 0xE0 1 bad-tag phase-error stall short-data timeout)"
  plug 1 wire
  until_true 20 is_bound 1 uas
  for code in usb::tag usb::phase bridge::check_condition bridge::short_data usb::timeout; do
    fails_with 4 "$code" "$asmpatch" backup --device "$(port_path 1)" -o never
    [ ! -e never ]
    until_true 10 is_bound 1 uas
  done
  "$asmpatch" backup --device "$(port_path 1)" -o after-faults
  [ "$(sum after-faults/config-0.bin)" = "$(host sum wire flash.bin 0 128)" ]
  until_true 10 is_bound 1 uas
  unplug 1
}

each_fault_over_uas_ends_in_an_error_and_the_next_command_works() {
  local bench code
  unit wire "$(faults 0xE4 "$bench_asks" bad-tag phase-error stall-status timeout short-data)"
  plug 1 wire
  until_true 20 is_bound 1 uas
  bench=("$asmpatch" bench --device "$(port_path 1)" --transport uas --path e4-255 --seconds 0.1 --repetitions 1)
  for code in usb::tag usb::protocol usb::stall usb::timeout; do
    fails_with 4 "$code" "${bench[@]}"
    until_true 10 is_bound 1 uas
  done
  "${bench[@]}" --json >bench.json
  grep -q '"outcome": "measured"' bench.json
  until_true 10 is_bound 1 uas
  unplug 1
}

# benching TRANSPORT [OPTION...]: starts a bench of the unit at port 1 in the background as `running`, and waits until
# it has the unit.
benching() {
  local transport=$1
  shift
  until_true 20 is_bound 1 uas
  "$asmpatch" bench --device "$(port_path 1)" --transport "$transport" --path e4-255 --seconds 60 "$@" 2>err &
  running=$!
  until_true 10 is_bound 1 usbfs
  sleep 1
}

# has_ended STATUS: checks that the background process ends with this exit status.
has_ended() {
  local status=0
  wait "$running" || status=$?
  cat err
  [ "$status" = "$1" ]
}

# unplugged_ends_with CODE: pulls the cable of port 1, and checks that the background process says so at once.
unplugged_ends_with() {
  local began=$SECONDS
  host unplug 1
  has_ended 4
  grep -q "$1" err
  # If Linux gets a request before its hub driver has seen the unit leave, it waits 5 s for QEMU's xHCI.
  [ $((SECONDS - began)) -le 10 ]
  until_true 20 is_gone 1
}

ctrl_c_in_the_middle_of_a_bench_gives_the_driver_back() {
  local transport running
  unit busy
  plug 1 busy
  for transport in bot uas; do
    benching "$transport"
    kill -INT "$running"
    has_ended 130
    until_true 10 is_bound 1 uas
  done
  unplug 1
}

# The unit doesn't answer: the first Ctrl-C waits for the end of a command.
a_second_ctrl_c_ends_the_process_at_once_and_gives_the_driver_back() {
  local transport running
  unit mute "$(faults 0xE4 "$bench_asks" timeout timeout)"
  plug 1 mute
  for transport in bot uas; do
    benching "$transport" --timeout 60
    kill -INT "$running"
    sleep 0.5
    # The process is still waiting, so the second signal ends it.
    is_bound 1 usbfs
    kill -INT "$running"
    has_ended 130
    until_true 3 is_bound 1 uas
  done
  unplug 1
}

pulling_the_cable_in_the_middle_of_a_bench_ends_it_at_once() {
  local transport running
  for transport in bot uas; do
    unit gone
    plug 1 gone
    benching "$transport"
    unplugged_ends_with usb::disconnected
  done
}

# The panic is in a callback: over UAS with 30 commands in flight, over Bulk-Only between two commands.
a_panic_gives_the_driver_back_even_with_commands_in_flight() {
  local transport
  unit dropped
  plug 1 dropped
  for transport in bot uas; do
    until_true 20 is_bound 1 uas
    fails_with 101 'as asked for' "$examples/panic_in_flight" "$(port_path 1)" "$transport"
    until_true 10 is_bound 1 uas
  done
  unplug 1
}

# Use an SSD, which answers the kernel's READ(10). With a GPU, usb-storage would wait 30 s before it can be detached.
asmpatch_falls_back_to_bulk_only_where_streams_are_refused() {
  unit plain "$ssd"
  plug n plain
  until_true 20 is_bound n usb-storage
  "$asmpatch" bench --device "$(port_path n)" --path e4-255 --seconds 0.1 --repetitions 1 --json >bench.json
  cat bench.json
  grep -q '"transport": "bulk-only"' bench.json
  grep -q '"outcome": "measured"' bench.json
  until_true 10 is_bound n usb-storage
  unplug n
}

at_high_speed_asmpatch_runs_uas_without_streams() {
  local port
  unit slow 'speed = "high"'
  plug 1 slow
  port=$(high_speed_port_of 1)
  until_true 20 test -e "/sys/bus/usb/drivers/uas/$port:1.0"
  "$asmpatch" bench --device "$port" --path e4-255 --seconds 0.1 --repetitions 1 --json >bench.json
  cat bench.json
  grep -q '"transport": "uas"' bench.json
  grep -q '"outcome": "measured"' bench.json
  until_true 10 test -e "/sys/bus/usb/drivers/uas/$port:1.0"
  host unplug 1
  until_true 20 refute test -e "/sys/bus/usb/devices/$port"
}
