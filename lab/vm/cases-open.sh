# Cases of asmpatch on units with open firmware, and on devices behind a bridge, through Linux's USB stack: flash by
# control requests in every direction, and PCIe over both firmwares.

# shellcheck shell=bash

# Times of a flash chip.
flash_times='[timing]
erase-sector-ms = 45
program-page-us = 400
reenumerate-ms = 600'

# holds UNIT IMAGE: checks that the unit's flash holds the image's file.
holds() {
  local len
  len=$(stat -c %s "$images/$2.bin")
  [ "$(host sum "$1" flash.bin 256 $((len < 65280 ? len : 65280)))" = "$(sum <(head -c 65280 "$images/$2.bin"))" ] || return 1
  [ "$len" -le 65280 ] || [ "$(host sum "$1" flash.bin 65536 $((len - 65280)))" = "$(sum <(tail -c +65281 "$images/$2.bin"))" ]
}

# by_registers PORT UNIT IMAGE: flashes the image to a unit with open firmware. The unit runs it after a power cycle.
by_registers() {
  "$asmpatch" flash "$images/$3.bin" --device "$(port_path "$1")" --yes --json >flashed.json
  cat flashed.json
  grep -q '"needs": "power"' flashed.json
  holds "$2" "$3"
  host replug "$2"
}

a_unit_with_open_firmware_is_flashed_through_its_registers_and_back_again() {
  local blocks
  chip_unit dock open "$flash_times"
  plug 4 dock
  until_true 20 test -e "$(device_of 4)/product"
  blocks=$(host sum dock flash.bin 0 256)
  "$asmpatch" backup --device "$(port_path 4)" -o opened
  holds dock open
  "$asmpatch" verify "$images/open.bin" --device "$(port_path 4)"
  by_registers 4 dock stock
  until_true 20 is_bound 4 uas
  # The way back uses SCSI.
  "$asmpatch" flash "$images/open.bin" --device "$(port_path 4)" --yes
  holds dock open
  host replug dock
  until_true 20 grep -q custom "$(device_of 4)/product"
  by_registers 4 dock patched
  until_true 20 is_bound 4 uas
  has_id 4 add1:0001
  "$asmpatch" restore opened --device "$(port_path 4)" --yes
  holds dock open
  [ "$(host sum dock flash.bin 0 256)" = "$blocks" ]
  unplug 4
}

# The units differ only in their firmware. Both keep their maker's identity, but the patched firmware's runtime doesn't
# look for units under it.
the_same_gpu_is_found_through_either_firmware_and_doctor_says_who_could_use_it() {
  local image status again
  for image in patched open; do
    chip_unit gpu "$image"
    plug 5 gpu
    until_true 20 test -e "$(device_of 5)/product"
    [ "$image" = open ] || until_true 20 is_bound 5 uas
    "$asmpatch" pcie --device "$(port_path 5)" >tree
    cat tree
    grep -q '1002:744c' tree
    status=0
    "$asmpatch" doctor --device "$(port_path 5)" --report doctor-$image.json >page || status=$?
    cat page
    if [ "$image" = open ]; then [ "$status" = 0 ]; else [ "$status" = 1 ] && grep -q 'looks for ADD1:0001' page; fi
    unplug 5
    # The report is diagnosed again without the unit.
    again=0
    "$asmpatch" doctor --from "doctor-$image.json" >again || again=$?
    cat again
    [ "$again" = "$status" ]
    grep -q '1002:744c' again
  done
}

# The first command holds the unit for 20 s and more. The second says so at once.
a_second_flasher_finds_the_unit_in_use_and_the_first_writes_every_byte() {
  local first status=0
  chip_unit shared open '[timing]
erase-sector-ms = 700'
  plug 4 shared
  until_true 20 test -e "$(device_of 4)/product"
  "$asmpatch" flash "$images/patched.bin" --device "$(port_path 4)" --yes >first.log 2>&1 &
  first=$!
  until_true 180 grep -q 'clear the old image' first.log
  fails_with 4 usb::busy "$asmpatch" flash "$images/open.bin" --device "$(port_path 4)" --yes
  grep -q asmpatch err
  wait "$first" || status=$?
  cat first.log
  [ "$status" = 0 ]
  holds shared patched
  unplug 4
}

# Each kind of request that a runtime keeps in flight, through libusb and the kernel. A program that waited for its
# deadline would take a minute.
pulling_the_cable_amid_open_firmwares_requests_ends_them_at_once_and_frees_the_unit() {
  local path running
  for path in e4-255 tlp-read tlp-write f0-write f0-read f2-out; do
    chip_unit gone open
    plug 1 gone
    until_true 20 test -e "$(device_of 1)/product"
    # Gives the GPU its addresses.
    "$asmpatch" bench --device "$(port_path 1)" --path tlp-write --seconds 0.1 --repetitions 1
    "$asmpatch" bench --device "$(port_path 1)" --path "$path" --seconds 60 --timeout 60 2>err &
    running=$!
    until_true 10 is_bound 1 usbfs
    sleep 2
    unplugged_ends_with control::disconnected
  done
  # The port's lock and the kernel's claim are free again.
  plug 1 gone
  until_true 20 test -e "$(device_of 1)/product"
  flock --nonblock "/tmp/asm2464-$(port_path 1).lock" true
  "$asmpatch" pcie --device "$(port_path 1)"
  unplug 1
}

open_cases=()
if [ -e "$images/open.bin" ] && [ -e "$images/patched.bin" ]; then
  open_cases+=(
    a_unit_with_open_firmware_is_flashed_through_its_registers_and_back_again
    a_second_flasher_finds_the_unit_in_use_and_the_first_writes_every_byte
    the_same_gpu_is_found_through_either_firmware_and_doctor_says_who_could_use_it
    pulling_the_cable_amid_open_firmwares_requests_ends_them_at_once_and_frees_the_unit
  )
fi
