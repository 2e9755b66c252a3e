# Cases that run a GPU runtime's own USB code, from its published releases, on units that run firmware. The client
# writes memory behind the bridge in one way, reads it in another, and compares every byte. See clients/*.py.

# shellcheck shell=bash

# client RELEASE PORT COMMAND [ARGUMENT...]: runs a release's client on the unit at a port. hcq2 is in no release: it runs
# on the newest wheel.
client() {
  local release=$1 port=$2 command=$3 wheel device libusb
  shift 3
  wheel=${release/hcq2/0.14.0}
  device=$(device_of "$port")
  libusb=$(echo /usr/lib/*/libusb-1.0.so.0)
  PYTHONPATH=$cache/tinygrad-$wheel PYTHONDONTWRITEBYTECODE=1 LIBUSB_PATH=$libusb \
    python3 "$vm/clients/tinygrad-$release.py" "$command" "$(cat "$device/idVendor")" "$(cat "$device/idProduct")" "$@"
}

has_runtime() { [ -e "$cache/tinygrad-$1/.complete" ]; }

# The patched firmware, which the older releases drive: over UAS and Bulk-Only.
the_client_of_tinygrad_0_13_0_finds_every_byte_behind_the_patched_firmware() {
  chip_unit runtime patched
  plug_chip 0 runtime uas
  client 0.13.0 0 check
  unplug 0
}

# The open firmware: newer releases drive no other.
the_client_of_tinygrad_0_14_0_finds_every_byte_behind_the_open_firmware() {
  open_unit 0 runtime
  client 0.14.0 0 check
  unplug 0
}

# tinygrad's next client, whose order of calls is played on each build of the open firmware.
the_order_of_calls_of_tinygrad_s_next_client_moves_every_byte_through_each_build_of_the_open_firmware() {
  local kind
  for kind in open newest usb4; do
    [ -e "$images/$kind.bin" ] || continue
    open_at 0 "next-$kind" "$kind" 'behind = "tiny-gpu"'
    client hcq2 0 check
    unplug 0
  done
}

# open_unit PORT NAME: makes a unit that runs open firmware, to which no driver binds.
open_unit() {
  chip_unit "$2" open
  plug "$1" "$2"
  until_true 20 test -e "$(device_of "$1")/product"
}

# The runtime has its own lock, so only the kernel's claim keeps it and asmpatch apart. Another program can take
# asmpatch's lock.
a_unit_in_use_is_refused_to_a_second_program_and_free_after_the_first() {
  local first process lock address pcie
  chip_unit shared open '[timing]
erase-sector-ms = 700'
  plug 4 shared
  until_true 20 test -e "$(device_of 4)/product"
  pcie=("$asmpatch" pcie --device "$(port_path 4)")
  lock=/tmp/asm2464-$(port_path 4).lock
  "${pcie[@]}"
  [ -f "$lock" ]

  client 0.14.0 4 hold >first.log 2>&1 &
  first=$!
  until_true 60 grep -q holds first.log
  read -r address <"$(device_of 4)/devnum"
  [ -f "/tmp/am_usb:$(cut -d - -f 1 <<<"$(port_path 4)")-$address.lock" ]
  fails_with 4 usb::busy "${pcie[@]}"
  process=$(sed -n 's/.* as process //p' first.log)
  grep -q "process $process (python3)" err
  kill "$process"
  wait "$first" || true
  "${pcie[@]}"

  "$asmpatch" flash "$images/patched.bin" --device "$(port_path 4)" --yes >first.log 2>&1 &
  first=$!
  until_true 180 grep -q 'clear the old image' first.log
  fails_with 1 'Resource busy' client 0.14.0 4 hold
  fails_with 4 usb::busy "${pcie[@]}"
  wait "$first"

  flock --no-fork "$lock" sleep 600 &
  first=$!
  until_true 10 refute flock --nonblock "$lock" true
  fails_with 4 usb::busy "${pcie[@]}"
  grep -q "process $first (sleep)" err
  kill "$first"
  until_true 10 "${pcie[@]}"
  unplug 4
}

# asmpatch's own requests over libusb. The program compares what it reads with what it wrote.
asmpatch_moves_every_byte_through_the_open_firmware_with_one_and_with_many_in_flight() {
  local depth kind
  open_unit 0 requests
  for depth in 1 32; do
    for kind in e4 tlp f0-write f0-read f2-write; do "$examples/open_rate" "$(port_path 0)" "$kind" 4096 1024 "$depth"; done
    "$examples/open_rate" "$(port_path 0)" f0-write 131072 65536 "$depth"
    "$examples/open_rate" "$(port_path 0)" f2-write 524288 65536 "$depth"
  done
  unplug 0
}

# The example of the library for runtimes. It gets no port: it finds the unit by the IDs that the library knows.
the_library_s_example_finds_and_drives_open_firmware_under_each_of_its_ids() {
  local kind
  for kind in open newest; do
    open_at 4 "example-$kind" "$kind" 'behind = "gpu"'
    has_id 4 "$([ "$kind" = open ] && echo add1:0001 || echo 3801:0001)"
    "$examples/unit" >example
    grep -q '^PCIe link: 0x78' example
    unplug 4
  done
}

client_cases=()
if [ -e "$images/patched.bin" ] && has_runtime 0.13.0; then
  client_cases+=(the_client_of_tinygrad_0_13_0_finds_every_byte_behind_the_patched_firmware)
fi
if [ -e "$images/open.bin" ]; then
  client_cases+=(asmpatch_moves_every_byte_through_the_open_firmware_with_one_and_with_many_in_flight)
fi
if [ -e "$images/open.bin" ] && [ -e "$images/newest.bin" ]; then
  client_cases+=(the_library_s_example_finds_and_drives_open_firmware_under_each_of_its_ids)
fi
if [ -e "$images/open.bin" ] && has_runtime 0.14.0; then
  client_cases+=(
    the_client_of_tinygrad_0_14_0_finds_every_byte_behind_the_open_firmware
    the_order_of_calls_of_tinygrad_s_next_client_moves_every_byte_through_each_build_of_the_open_firmware
    a_unit_in_use_is_refused_to_a_second_program_and_free_after_the_first
  )
fi
