# Cases with asmpatch in the guest, from backup to restore: flash, re-enumeration, and faults between them.

# shellcheck shell=bash

# Time from E8 until the unit is back. If it came back before the kernel has seen it leave, that would cost 5 s: QEMU's
# xHCI answers no transfer to the former device, and the hub's only worker waits for it.
starts_over='[timing]
reenumerate-ms = 600'

# Whether the platform's folder points to a backup at this path, a pattern, although ASMPATCH_BACKUP_DIR names another.
is_pointed_to() {
  grep -q "^path = \".*/$1\"\$" "$HOME"/.local/share/asmpatch/backups/asmpatch-pointer-*
}

# The image to flash: the vendor's if there is one, otherwise the practice image of a new unit.
base_image() {
  if [ -n "$vendor_image" ]; then cp "$vendor_image" base.bin; else cp backup/firmware.bin base.bin; fi
}

backup_brings_both_blocks_and_every_byte_of_the_firmware() {
  unit dock "serial = \"DOCK0000001\"
$starts_over"
  plug 3 dock
  until_true 20 is_bound 3 uas
  "$asmpatch" backup --device "$(port_path 3)" -o backup
  cat backup/backup.toml
  is_pointed_to backup
  [ "$(sum backup/config-0.bin)" = "$(host sum dock flash.bin 0 128)" ]
  [ "$(sum backup/config-1.bin)" = "$(host sum dock flash.bin 128 128)" ]
  [ "$(sum backup/part-1.bin)" = "$(host sum dock flash.bin 256 65280)" ]
  [ "$(sum backup/part-2.bin)" = "$(host sum dock flash.bin 65536 65536)" ]
  until_true 10 is_bound 3 uas
}

flash_writes_the_patched_image_and_the_unit_comes_back_as_add1_0001() {
  base_image
  "$asmpatch" patch base.bin -o patched.bin --force
  "$asmpatch" flash patched.bin --device "$(port_path 3)" --yes --unproven
  until_true 20 has_id 3 add1:0001
  [ "$(sum <(head -c 65280 patched.bin))" = "$(host sum dock flash.bin 256 65280)" ]
  [ "$(sum <(tail -c +65281 patched.bin))" = "$(host sum dock flash.bin 65536 $(($(stat -c %s patched.bin) - 65280)))" ]
  [ "$(cat "$(device_of 3)/serial")" = DOCK0000001 ]
  is_pointed_to 'asmpatch-backup-DOCK0000001-[^/]*'
  host serverlog dock | grep -q 'plugged in as ADD1:0001 (vendor firmware)'
  # The CPU reset keeps the old code.
  replug 3 dock
}

bench_proves_the_patched_unit_over_both_transports() {
  local transport paths
  for transport in bot uas; do
    # The status patch affects only UAS: over Bulk-Only a write waits, patched or not.
    paths=write16,e4-255
    [ "$transport" = uas ] || paths=e4-255
    "$asmpatch" bench --device "$(port_path 3)" --transport "$transport" --path "$paths" --seconds 0.3 --repetitions 2 --json >bench.json
    cat bench.json
    [ "$(grep -c '"outcome": "measured"' bench.json)" = "$(tr , '\n' <<<"$paths" | wc -l)" ]
    refute grep -qE '"mismatches": [1-9]' bench.json
    until_true 10 is_bound 3 uas
  done
}

restore_brings_the_unit_back_byte_for_byte() {
  "$asmpatch" restore backup --device "$(port_path 3)" --yes --unproven
  until_true 20 has_id 3 174c:2464
  [ "$(sum backup/config-0.bin)" = "$(host sum dock flash.bin 0 128)" ]
  [ "$(sum backup/config-1.bin)" = "$(host sum dock flash.bin 128 128)" ]
  [ "$(sum <(head -c 65280 backup/firmware.bin))" = "$(host sum dock flash.bin 256 65280)" ]
  unplug 3
}

flash_refuses_a_unit_whose_disk_is_mounted() {
  unit data "$ssd"
  plug 2 data
  until_true 20 has_disk 2
  mkfs.minix "$(disk_of 2)"
  mkdir -p disk
  mount -t minix "$(disk_of 2)" disk
  local status=0
  "$asmpatch" flash patched.bin --device "$(port_path 2)" --yes --unproven || status=$?
  umount disk
  [ "$status" = 5 ]
  unplug 2
}

flash_refuses_a_unit_whose_disk_is_mounted_in_another_namespace() {
  unit elsewhere "$ssd"
  plug 2 elsewhere
  until_true 20 has_disk 2
  mkfs.minix "$(disk_of 2)"
  mkdir -p disk
  # In a chroot, / is not a mount point, so its propagation can't be changed.
  unshare --mount --propagation unchanged \
    sh -c 'mount -t minix "$1" disk && touch mounted && exec sleep 1000' sh "$(disk_of 2)" &
  local holder=$! status=0
  until_true 20 test -e mounted
  [ "$(grep -c "$(disk_of 2) " /proc/self/mountinfo)" = 0 ]
  "$asmpatch" flash patched.bin --device "$(port_path 2)" --yes || status=$?
  kill "$holder"
  wait "$holder" || true
  [ "$status" = 5 ]
  unplug 2
}

# Runs the first command that a stopped flash printed into file $1, with the options after it.
go_on() {
  local printed
  printed=$(sed -n 's/^ *asmpatch \(flash .*\)$/\1/p' "$1" | head -n 1)
  [ -n "$printed" ]
  shift
  eval "\"\$asmpatch\" $printed --yes \"\$@\""
}

a_unit_that_loses_its_power_during_e3_comes_back_as_the_boot_loader_and_is_recovered() {
  unit torn 'power-loss-after = 40000
back-after-ms = 500
'"$starts_over"
  plug 4 torn
  until_true 20 is_bound 4 uas
  local status=0
  "$asmpatch" flash patched.bin --device "$(port_path 4)" --yes --unproven 2>flash.err || status=$?
  cat flash.err
  [ "$status" = 4 ]
  grep -q 'asmpatch' flash.err
  # Block 0 is valid, so the boot loader has its identity.
  until_true 20 in_boot_loader torn
  until_true 20 has_id 4 add1:0001
  go_on flash.err --json >flash.json
  cat flash.json
  grep -q '"needs": "power"' flash.json
  # E8 halted the unit, which stays away until a power cycle.
  is_gone 4
  replug 4 torn
  has_id 4 add1:0001
  [ "$(sum <(head -c 65280 patched.bin))" = "$(host sum torn flash.bin 256 65280)" ]
  unplug 4
}

a_unit_that_is_unplugged_before_the_second_e3_is_recovered_from_the_boot_loader() {
  unit pulled 'back-after-ms = 500
[[fault]]
kind = "disconnect"
opcode = 0xE3
nth = 2
'"$starts_over"
  plug 5 pulled
  until_true 20 is_bound 5 uas
  local status=0
  "$asmpatch" flash patched.bin --device "$(port_path 5)" --yes --unproven 2>flash.err || status=$?
  cat flash.err
  [ "$status" = 4 ]
  until_true 20 in_boot_loader pulled
  until_true 20 has_id 5 add1:0001
  go_on flash.err
  replug 5 pulled
  unplug 5
}

# 255 pages of 20 ms keep the flash busy for 5 s during the first E3. The cable goes in the middle.
the_cable_is_pulled_in_the_middle_of_e3_and_the_boot_loader_takes_the_image_again() {
  local running status=0
  unit torn 'timing = { program-page-us = 20000, reenumerate-ms = 600 }'
  plug 4 torn
  until_true 20 is_bound 4 uas
  "$asmpatch" flash patched.bin --device "$(port_path 4)" --yes --unproven >flash.out 2>flash.err &
  running=$!
  until_true 20 grep -q 'write configuration block 1: written' flash.out
  sleep 1
  unplug 4
  wait "$running" || status=$?
  cat flash.out flash.err
  [ "$status" = 4 ]
  grep -q 'usb::disconnected' flash.err
  refute grep -q 'write firmware part 1' flash.out
  # The flash holds the pages programmed by then. The end of the part is still erased.
  [ "$(host sum torn flash.bin 256 4096)" = "$(sum <(head -c 4096 patched.bin))" ]
  [ "$(host sum torn flash.bin 61440 4096)" = "$(sum <(head -c 4096 /dev/zero | tr '\0' '\377'))" ]

  plug 4 torn
  until_true 20 in_boot_loader torn
  until_true 20 has_id 4 add1:0001
  go_on flash.err
  replug 4 torn
  [ "$(sum <(head -c 65280 patched.bin))" = "$(host sum torn flash.bin 256 65280)" ]
  unplug 4
}

# The status patch is a default patch, the extension of E4's length is not. With the extension the answers show what
# runs.
flash_says_what_runs_after_a_cpu_reset_that_keeps_the_code() {
  unit kept "$starts_over"
  plug 2 kept
  until_true 20 is_bound 2 uas
  "$asmpatch" patch base.bin --patch e4-length-16 -o long.bin --force
  "$asmpatch" flash long.bin --device "$(port_path 2)" --yes --unproven --json >flash.json
  cat flash.json
  grep -q '"runs": "before"' flash.json
  grep -q '"needs": "power"' flash.json
  until_true 20 has_id 2 add1:0001
  unplug 2
}

# A unit that came up at 480 Mbit/s leaves the USB 2 bus, and returns on the SuperSpeed bus of the same connector.
reset_brings_a_slow_unit_back_at_superspeed() {
  local slow
  slow=$(high_speed_port_of 1)
  unit slow "speed = \"high\"
speed-after-reset = \"super\"
$starts_over"
  plug 1 slow
  until_true 20 test -e "/sys/bus/usb/drivers/uas/$slow:1.0"
  "$asmpatch" reset --device "$slow" >reset.out
  cat reset.out
  grep -q "^$(port_path 1): back as 174C:2464 (vendor firmware) at 5 Gbit/s, was 480 Mbit/s" reset.out
  [ "$(cat "$(device_of 1)/speed")" = 5000 ]
  until_true 20 is_bound 1 uas
  unplug 1
}

two_units_are_flashed_at_once_and_each_keeps_its_serial_number() {
  unit left "serial = \"LEFT\"
$starts_over"
  unit right "serial = \"RIGHT\"
$starts_over"
  plug 6 left
  plug 7 right
  until_true 20 is_bound 6 uas
  until_true 20 is_bound 7 uas
  "$asmpatch" flash patched.bin --all --yes --unproven
  until_true 20 has_id 6 add1:0001
  until_true 20 has_id 7 add1:0001
  [ "$(cat "$(device_of 6)/serial") $(cat "$(device_of 7)/serial")" = 'LEFT RIGHT' ]
  unplug 6
  unplug 7
}

# The commands of docs/firmware-authors.md, with the unit on a USB port. The rig has compiled the sample.
firmware_written_in_c_is_wrapped_booted_profiled_and_flashed_and_answers() {
  local port first
  "$asmpatch" wrap "$images/sample.ihx" -o sample.bin
  "$asmpatch" verify --boot sample.bin
  "$asmpatch" run sample.bin --symbols "$images/sample.cdb" --control 'c0 a0 00 10 00 01 02 00' --profile sample.folded
  grep -q 'crc_xdata;crc_byte' sample.folded
  unit author "serial = \"AUTHOR000001\"
$starts_over"
  plug 6 author
  until_true 20 is_bound 6 uas
  port=$(port_path 6)
  "$asmpatch" flash sample.bin --device "$port" --yes --unproven
  host replug author
  until_true 20 grep -q 'custom sample' "$(device_of 6)/product"
  [ "$(sum sample.bin)" = "$(host sum author flash.bin 256 "$(stat -c %s sample.bin)")" ]
  # The sample's own request: a checksum of XDATA, which E5 changes.
  first=$("$examples/control" "$port" read a0 2000 10 2)
  "$examples/control" "$port" write e5 2000 00ab
  [ "$(wc -w <<<"$first")" = 2 ]
  [ "$("$examples/control" "$port" read a0 2000 10 2)" != "$first" ]
  unplug 6
}

sum() { sha256sum <"$1" | cut -d ' ' -f 1; }
