# Cases that run in the guest. Each is a function whose name is a sentence. It fails with its first failing command.

# shellcheck shell=bash
# --- clients that we did not write ---------------------------------------------------------------------------------

ssd='behind = { ssd = { bytes = 16777216 } }'
ssd_len=16777216

the_kernels_uas_driver_binds_and_sees_the_disk() {
  unit ssd "$ssd"
  plug 0 ssd
  until_true 20 is_bound 0 uas
  until_true 20 has_disk 0
  [ "$(cat "/sys/block/$(basename "$(disk_of 0)")/size")" = $((ssd_len / 512)) ]
  [ "$(cat "$(device_of 0)/speed")" = 5000 ]
  host serverlog ssd | grep -q 'alternate 1: UAS'
}

lsusb_finds_no_fault_in_the_descriptors() {
  lsusb -v -d 174c: >descriptors 2>faults
  cat descriptors faults
  [ ! -s faults ]
  refute grep -iE 'invalid|warning|unknown|error|unrecognized|\*\*' descriptors
  grep -q 'bInterfaceProtocol     98' descriptors
  grep -q 'SuperSpeed USB Device Capability' descriptors
  [ "$(grep -c 'MaxStreams             32' descriptors)" = 3 ]
  [ "$(grep -c 'bPipeID\|Data-in pipe\|Command pipe\|Status pipe\|Data-out pipe' descriptors)" -ge 4 ]
}

sg_inq_and_sg_readcap_tell_what_the_unit_is() {
  local node
  node=$(sg_of 0)
  sg_inq "$node" | tee inquiry
  grep -q 'Vendor identification: ASMedia' inquiry
  sg_readcap "$node" | tee capacity
  grep -q "Device size: $ssd_len bytes" capacity
  sg_readcap --16 "$node" | grep -q "Device size: $ssd_len bytes"
  sg_turs "$node"
  sg_luns "$node"
}

sg_raw_reads_a_configuration_block_with_e0() {
  sg_raw -r 128 -o block "$(sg_of 0)" e0 50 00 00 00 00
  [ "$(sha256sum <block | cut -d ' ' -f 1)" = "$(host sum ssd flash.bin 0 128)" ]
}

sg_raw_reads_xdata_with_e4_and_is_refused_a_wrong_page() {
  local node version
  node=$(sg_of 0)
  sg_raw -r 6 -o version "$node" e4 06 50 07 f0 00
  version=$(od -A n -t x1 version | tr -d ' \n')
  [ ${#version} = 12 ]
  if sg_raw -r 6 "$node" e4 06 4f 00 00 00 2>refused; then cat refused; return 1; fi
  grep -qi 'illegal request' refused
  grep -qi 'invalid field in cdb' refused
}

sg_dd_writes_and_reads_every_byte_of_the_disk_through_uas() {
  write_and_read_the_disk 0 ssd
}

# Writes and reads the whole disk, and compares each byte with the unit's own file.
write_and_read_the_disk() {
  local node
  node=$(sg_of "$1")
  head -c "$ssd_len" /dev/urandom >pattern
  sg_dd if=pattern of="$node" bs=512 bpt=128 count=$((ssd_len / 512))
  [ "$(sha256sum <pattern | cut -d ' ' -f 1)" = "$(host sum "$2" ssd.bin 0 "$ssd_len")" ]
  sg_dd if="$node" of=readback bs=512 bpt=128 count=$((ssd_len / 512))
  cmp pattern readback
  # The block layer splits and merges requests as it likes.
  dd if="$(disk_of "$1")" of=readback bs=1M iflag=direct
  cmp pattern readback
  head -c 1048576 /dev/urandom | dd of="$(disk_of "$1")" bs=1M seek=3 oflag=direct iflag=fullblock
  dd if="$(disk_of "$1")" of=readback bs=1M iflag=direct
  [ "$(sha256sum <readback | cut -d ' ' -f 1)" = "$(host sum "$2" ssd.bin 0 "$ssd_len")" ]
}

a_file_system_on_the_disk_survives_replugging() {
  local disk
  disk=$(disk_of 0)
  mke2fs -q -F "$disk" >/dev/null
  dd if="$disk" of=before bs=1M iflag=direct
  unplug 0
  plug 0 ssd
  until_true 20 has_disk 0
  dd if="$(disk_of 0)" of=after bs=1M iflag=direct
  cmp before after
  unplug 0
}

the_kernel_falls_back_to_usb_storage_where_streams_are_refused() {
  unit ssd2 "$ssd"
  plug n ssd2
  until_true 20 is_bound n usb-storage
  until_true 20 has_disk n
  host serverlog ssd2 >serverlog
  refute grep -q 'alternate 1' serverlog
}

sg_dd_writes_and_reads_every_byte_of_the_disk_through_usb_storage() {
  write_and_read_the_disk n ssd2
  unplug n
}

at_high_speed_the_kernel_runs_uas_without_streams() {
  unit slow "$ssd
speed = \"high\""
  plug 1 slow
  until_true 20 has_high_speed_disk
  [ "$(basename "$(readlink "/sys/bus/usb/devices/$(high_speed_port_of 1)/$(high_speed_port_of 1):1.0/driver")")" = uas ]
  local disk=/dev/$high_speed_disk
  head -c 1048576 /dev/urandom >pattern
  dd if=pattern of="$disk" bs=64k oflag=direct
  dd if="$disk" of=readback bs=64k count=16 iflag=direct
  cmp pattern readback
  [ "$(sha256sum <pattern | cut -d ' ' -f 1)" = "$(host sum slow ssd.bin 0 1048576)" ]
  host unplug 1
  until_true 20 refute test -e "/sys/bus/usb/devices/$(high_speed_port_of 1)"
}
has_high_speed_disk() {
  local node
  for node in "/sys/bus/usb/devices/$(high_speed_port_of 1)"/*:1.0/host*/target*/*/block/sd*; do [ -e "$node" ] && high_speed_disk=${node##*/}; done
  [ -n "${high_speed_disk:-}" ]
}

the_kernel_recovers_from_a_stall_and_from_a_phase_error() {
  unit faulty "$ssd
[[fault]]
kind = \"stall\"
opcode = 0x28
nth = 3
[[fault]]
kind = \"phase-error\"
opcode = 0x28
nth = 6"
  plug n faulty
  until_true 40 has_disk n
  dd if="$(disk_of n)" of=readback bs=64k count=16 iflag=direct
  [ "$(stat -c %s readback)" = 1048576 ]
  unplug n
}

# --- asmpatch itself -------------------------------------------------------------------------------------------------

asmpatch_lists_a_unit_with_its_port_speed_and_driver() {
  unit gpu
  plug 2 gpu
  until_true 20 is_bound 2 uas
  "$asmpatch" list --json | tee list.json
  grep -q '"vendor"' list.json
  grep -q '"uas"' list.json
  "$asmpatch" list | grep -q '174C:2464'
}

bench_measures_over_bulk_only_and_gives_the_driver_back() {
  "$asmpatch" bench --device "$(port_path 2)" --transport bot --path e4-255 --seconds 0.3 --repetitions 2 --json >bench.json
  cat bench.json
  grep -q '"outcome": "measured"' bench.json
  until_true 10 is_bound 2 uas
}

bench_measures_over_uas_and_gives_the_driver_back() {
  "$asmpatch" bench --device "$(port_path 2)" --transport uas --path e4-255 --seconds 0.3 --repetitions 2 --json >bench.json
  cat bench.json
  grep -q '"transport": "uas-streams"' bench.json
  grep -q '"outcome": "measured"' bench.json
  until_true 10 is_bound 2 uas
}

unplugging_leaves_no_device_behind() {
  unplug 2
  "$asmpatch" list --json >list.json
  cat list.json
  grep -q '"units": \[\]' list.json
}

. "$vm/cases-faults.sh"
. "$vm/cases-flash.sh"
. "$vm/cases-chip.sh"
. "$vm/cases-clients.sh"
. "$vm/cases-open.sh"
. "$vm/cases-ids.sh"
. "$vm/cases-reset.sh"

for case in \
  the_kernels_uas_driver_binds_and_sees_the_disk \
  lsusb_finds_no_fault_in_the_descriptors \
  sg_inq_and_sg_readcap_tell_what_the_unit_is \
  sg_raw_reads_a_configuration_block_with_e0 \
  sg_raw_reads_xdata_with_e4_and_is_refused_a_wrong_page \
  sg_dd_writes_and_reads_every_byte_of_the_disk_through_uas \
  a_file_system_on_the_disk_survives_replugging \
  the_kernel_falls_back_to_usb_storage_where_streams_are_refused \
  sg_dd_writes_and_reads_every_byte_of_the_disk_through_usb_storage \
  at_high_speed_the_kernel_runs_uas_without_streams \
  the_kernel_recovers_from_a_stall_and_from_a_phase_error \
  asmpatch_lists_a_unit_with_its_port_speed_and_driver \
  bench_measures_over_bulk_only_and_gives_the_driver_back \
  bench_measures_over_uas_and_gives_the_driver_back \
  unplugging_leaves_no_device_behind \
  each_fault_over_bulk_only_ends_in_an_error_and_the_next_command_works \
  each_fault_over_uas_ends_in_an_error_and_the_next_command_works \
  ctrl_c_in_the_middle_of_a_bench_gives_the_driver_back \
  a_second_ctrl_c_ends_the_process_at_once_and_gives_the_driver_back \
  pulling_the_cable_in_the_middle_of_a_bench_ends_it_at_once \
  a_panic_gives_the_driver_back_even_with_commands_in_flight \
  asmpatch_falls_back_to_bulk_only_where_streams_are_refused \
  at_high_speed_asmpatch_runs_uas_without_streams \
  backup_brings_both_blocks_and_every_byte_of_the_firmware \
  flash_writes_the_patched_image_and_the_unit_comes_back_as_add1_0001 \
  bench_proves_the_patched_unit_over_both_transports \
  restore_brings_the_unit_back_byte_for_byte \
  flash_refuses_a_unit_whose_disk_is_mounted \
  flash_refuses_a_unit_whose_disk_is_mounted_in_another_namespace \
  a_unit_that_loses_its_power_during_e3_comes_back_as_the_boot_loader_and_is_recovered \
  a_unit_that_is_unplugged_before_the_second_e3_is_recovered_from_the_boot_loader \
  the_cable_is_pulled_in_the_middle_of_e3_and_the_boot_loader_takes_the_image_again \
  flash_says_what_runs_after_a_cpu_reset_that_keeps_the_code \
  reset_brings_a_slow_unit_back_at_superspeed \
  two_units_are_flashed_at_once_and_each_keeps_its_serial_number \
  firmware_written_in_c_is_wrapped_booted_profiled_and_flashed_and_answers \
  "${chip_cases[@]}" \
  "${client_cases[@]}" \
  "${open_cases[@]}" \
  "${ids_cases[@]}" \
  "${reset_cases[@]}"
do
  run_case "$case"
done
finish
