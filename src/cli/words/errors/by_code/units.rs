//! The table's entries for units, the connection to them, and what is behind them.

use std::borrow::Cow;

use super::{AdvicePart, ErrorEntry, Hands};

/// Sorted by the first code.
pub(in crate::cli::words::errors) const ENTRIES: &[ErrorEntry] = entries![
    "asmpatch::backup::bad_pointer",
        "a pointer in the default folder says where a backup was saved: look for that backup by hand, or delete the \
         pointer if it is another unit's";
    "asmpatch::backup::copy_without_block", (
        "a unit that got it would lose its serial number and its names: name the unit's own backup, or another copy"
        ["see what is in this one" "info {COPY}"]);
    "asmpatch::backup::digest",
        "the file was changed or damaged after the backup; a unit with it might not start. Use another backup";
    "asmpatch::backup::exists",
        ("a backup is never overwritten, as it may be the only copy of a unit's identity: name another folder, with \
         `backup -o DIR`" {" or with {}" if "backup_dir"});
    "asmpatch::backup::files",
        "the manifest was changed after it was written, so asmpatch can't check the backup; use another one";
    "asmpatch::backup::firmware", (
        "the chip's boot loader checks length, magic, checksum and CRC; restore another backup, or flash an image"
        ["list the backups" "backup --list"]);
    "asmpatch::backup::format", "a newer asmpatch wrote it; use that version to restore it";
    "asmpatch::backup::io",
        "check the name, and that you may read it: a backup is a folder with a backup.toml in it";
    "asmpatch::backup::manifest", (
        "name the folder of a backup; `asmpatch help formats` describes backup.toml"
        ["list the backups" "backup --list"]);
    "asmpatch::backup::no_block", (
        "the unit lets you read nothing that could be backed up"
        ["if it is in its boot loader, see the commands that give it firmware, with the backups that may be its own"
         "doctor"]);
    "asmpatch::backup::no_copy", (
        "a copy of a flash begins with its first byte, and has both blocks and an image; for the configuration alone \
         its first 256 bytes do, too" ["see what the file is" "info {COPY}"]);
    "asmpatch::backup::no_place", ("name a folder with ASMPATCH_BACKUP_DIR" {", or with {}" if "backup_dir"});
    "asmpatch::backup::no_rights", (
        "another user made it, as with sudo, or its rights were changed; run asmpatch as its owner, or make it yours"
        ["see how, for each backup" "backup --list"]);
    "asmpatch::backup::not_there",
        "connect its disk, or look for it on the host that saved it; `flash IMAGE --config-from POINTER` takes its \
         configuration from the pointer";
    "asmpatch::backup::only_commands", (
        "the backup is complete, and is all that `restore` needs"
        ["open firmware lets asmpatch read the rest, and changes the first slot alone" "flash ed4e39b"]
        "then run this command again, and go back with `restore` and the backup. Or read the flash with a programmer \
         and a clip: `info` shows such a copy");
    "asmpatch::backup::pointer",
        "the backup is complete, but other commands find it only if you name it";
    "asmpatch::backup::save",
        ("depending on the system's error, make room on the disk, check that you may write there, or raise the limit \
         of open files (`ulimit -n`). Or name another folder, with `backup -o DIR`" {" or with {}" if "backup_dir"}
        ". No partial backup is left");
    "asmpatch::backup::several", (
        "name no folder for it: each unit gets one of its own where all backups go"
        {", or in the one that {} names" if "backup_dir"});
    "asmpatch::backup::smaller_flash",
        "the backup is complete, but nobody knows how long the flash is, so there is no copy of all of it. Power-cycle \
         the unit and run the command again, in case the ID was misread; otherwise a programmer and a clip read it";
    "asmpatch::backup::unknown_flash",
        "the backup is complete, and is all that `restore` needs. A copy of the wrong length would look like a whole \
         one, so there is none. Please report the ID with the name of the dock; a programmer and a clip read any flash";
    "asmpatch::backup::unread",
        ("depending on the system's error, run asmpatch as the user who made that backup, or raise the limit of open \
         files (`ulimit -n`). Or name another folder, with `backup -o DIR`" {" or with {}" if "backup_dir"});
    "asmpatch::backup::unsteady_block" | "asmpatch::backup::unsteady_flash" | "asmpatch::backup::unsteady_part", (
        "discard what was read; " OtherCableNoHub ", and run the command again");
    "asmpatch::backup::unusable", ("the backup keeps the raw parts, but `restore` refuses it; " OtherCable);
    "asmpatch::backup::whole_flash",
        "the backup is complete. Make room on the disk, or check that you may write to its folder, and run the command \
         again: it continues with what was saved";
    "asmpatch::bench::baseline", ("`asmpatch help bench.md` describes it" ["write one" "bench --json > before.json"]);
    "asmpatch::bench::baseline_schema", "measure the baseline again with this version";
    "asmpatch::bench::corrupt", (
        "do not use this unit as it is: " OtherCable
        ", then compare its flash with its image, by `verify --device`, and flash it again");
    "asmpatch::bench::errors", (
        OtherCableNoHub
        ", and soak again: errors by kind and time show which of them helps. `asmpatch help bench.md` says what each \
         kind points to");
    "asmpatch::bench::failed", (OtherCable ", and power-cycle the unit");
    "asmpatch::bench::floor", (FasterLink ["see the speed of the link" "list"]);
    "asmpatch::bench::integrity", (
        "the report's first lines show which direction failed; " OtherCable ", and power-cycle the unit");
    "asmpatch::bench::no_firmware" | "asmpatch::pcie::no_firmware" | "asmpatch::xdata::no_firmware", (
        "nothing was sent to it" ["see the commands that give it firmware, with its backups" "doctor"]);
    "asmpatch::bench::nothing_compared",
        ({"measure the baseline and this run with the same {}" if "paths" ""} {", {}" if "sizes" ""}
        {" and {}" if "depths" ""});
    "asmpatch::bench::nothing_to_draw", "the table says why each path has no figures";
    "asmpatch::bench::recovery", (Replug "; nothing was written to its flash");
    "asmpatch::bench::ssd",
        ("take the SSD out" {", or measure only paths that read: {}" if "paths" "read16,e4-255,e4-4096"});
    "asmpatch::bench::stock",
        "vendor firmware with the default patches answers it, and open firmware takes data by F2 in its place: `asmpatch \
         help which-firmware` says which you need";
    "asmpatch::bench::svg", "the figures are in `bench --json`; please report this as a bug";
    "asmpatch::bench::unknown_behind", (
        "nothing was written. " {"{} restarts the unit first; or " if "restart"} ReplugIt ", then run the command again"
        ["measure without writing" "bench --path e4-255"]);
    "asmpatch::bench::unsteady",
        "something else kept the host busy: measure again on an idle host, and the baseline too, before you call it worse";
    "asmpatch::bench::vanished", (
        "the report shows what was measured until then; " Replug ["see what is there" "list"] "then " OtherCable);
    "asmpatch::bench::worse",
        ("measure both runs with the same options, cable and port, on an idle host"
        {"; {} allows more" if "max_slower"});
    "asmpatch::bridge::check_condition" | "asmpatch::control::timeout" | "asmpatch::registers::controller", (
        "run the command again; if the error stays, " Replug);
    "asmpatch::bridge::length" | "asmpatch::control::length", "split the transfer";
    "asmpatch::bridge::malformed", ("the unit breaks the SCSI standard" ["see what runs there" "list"]);
    "asmpatch::bridge::short_data" | "asmpatch::bridge::short_xdata" | "asmpatch::control::short", (
        "discard what was read; run the command again, and if the error stays, " OtherCable);
    "asmpatch::bridge::status", "wait a few seconds and run the command again";
    "asmpatch::bridge::unknown_variables", (
        "nothing was written: asmpatch knows the addresses of these variables only in 240417 and 231204. This \
         firmware may keep something else there" ["measure without the initialisation" "bench --path e4-255"]);
    "asmpatch::bridge::xdata_one_byte",
        "the running firmware takes E4's length as one byte; read at most 255 bytes a command, or patch it with \
         e4-length-16";
    "asmpatch::bridge::xdata_one_packet",
        "the running firmware hands the whole answer to the USB controller at once, and the controller sends one \
         packet of it; read at most 255 bytes a command, or patch and flash it again with this asmpatch's \
         e4-length-16, which goes packet by packet";
    "asmpatch::control::bulk_timeout", (["restart it, mildest first" "reset"] "if nothing helps, " ReplugWithSupply);
    "asmpatch::control::disconnected" | "asmpatch::usb::disconnected", (
        CheckCable ", " PlugIn ["see what is there" "list"]);
    "asmpatch::control::io" | "asmpatch::usb::io" | "asmpatch::usb::open", (
        "look at the host controller's messages in the system log (`dmesg` on Linux), and " OtherCable);
    "asmpatch::control::malformed", ("this build of the firmware breaks the protocol" ["see what runs there" "list"]);
    "asmpatch::control::not_taken",
        "the program on the device must read the sentinel behind the data and then write the fence; if it does, the window \
         is lost: send it again";
    "asmpatch::control::sram_busy", (
        "end the runtime, if one is at work. If not, an earlier transfer waits for data that no host sends"
        ["restart the unit, mildest first" "reset"] "if nothing helps, " ReplugWithSupply);
    "asmpatch::control::stalled", (
        "this build of the firmware does not know the request" ["see what runs there" "list"]);
    "asmpatch::device::ambiguous", (
        "units flashed by other tools often share one serial number"
        {"name the one that you mean by its port" each "device" "PORT"});
    "asmpatch::device::mounted", (
        "asmpatch would take the unit from the system and cut the disk off" ["unmount it first" "$ umount {PLACE}"]
        ["stop the swap on it first" "$ swapoff {DEVICE}"]
        "a disk that is claimed and not mounted here belongs to LVM, md or ZFS, a loop device, a virtual machine, or \
         a mount in another namespace such as a container's: `lsblk` and `fuser -v` show more");
    "asmpatch::device::no_data_folder", ("name a folder yourself" {": {}" if "device" "virtual:DIR"});
    "asmpatch::device::no_match", (HandOn
        {"name the ID of a dock that asmpatch does not know: {}" if "usb_ids"}
        ["see port paths and serial numbers" "list"]);
    "asmpatch::device::none", (HandOn
        "connect a dock over USB"
        {". If `lsusb` lists yours under an ID that asmpatch does not look for, name it with {}" if "usb_ids"}
        {"; {} works without one" if "device" "virtual:DIR"}
        ["list the IDs that asmpatch looks for" "list --known"]);
    "asmpatch::device::other", (
        "nothing was sent to it" ["see which unit is where" "list"] "then run the command again"
        {", with {}" if "device" ""});
    "asmpatch::device::other_chip" | "asmpatch::usb::other_chip", (
        "its commands are not an ASM2464PD's, so nothing is sent to it, whatever options are given"
        ["see port paths and serial numbers of units" "list"]);
    "asmpatch::device::other_name", (
        {"{} takes a port path as in 3-1.2, a serial number, or `virtual:DIR`" if "device" ""}
        {"name the dock by its port" each "device" "PORT"}
        ["see port paths and serial numbers" "list"]);
    "asmpatch::device::several",
        {"name the one that you mean" each "device" "PORT"};
    "asmpatch::device::tunnelled", (
        "if one of them is your dock, its stock firmware tunnels PCIe and shows no USB device: the GPU is a plain \
         PCIe device there, and appears if it has its own power and no port before it is suspended. To reach the dock \
         over USB, connect it through a USB 3 port, cable or hub, or switch USB4 and Thunderbolt off in the host's \
         firmware settings" ["how" "help recovery The unit is not listed"]
        ["see what keeps the GPU away" "doctor"]);
    "asmpatch::device::tunnelled_dock", (
        "the dock's stock firmware tunnels PCIe and shows no USB device: the GPU is a plain PCIe device here. To \
         reach the dock over USB, connect it through a USB 3 port, cable or hub, or switch USB4 and Thunderbolt off \
         in the host's firmware settings" ["how" "help recovery The unit is not listed"]
        ["see whether it has its own power and its driver" "doctor"]);
    "asmpatch::device::unauthorised", (
        "the host tunnels nothing of a device until it has authorised it"
        ["authorise it for good" "$ boltctl enroll --policy=auto {UUID}"]
        "if that fails, `fwupdmgr` may have a newer NVM for the host. If the device is your dock, its stock firmware \
         then is a plain PCIe device. To reach the dock over USB, connect it through a USB 3 port, cable or hub, or \
         switch USB4 and Thunderbolt off in the host's firmware settings" ["how" "help recovery The unit is not listed"]);
    "asmpatch::device::unchecked_disk", (
        "in a container without the disk's node in /dev, asmpatch can't see what the host does with the disk: run \
         asmpatch on the host, or give the container the node"
        {"if you know that nothing uses the disk, name it" "unchecked_disks" "DISK"});
    "asmpatch::device::unknown_id", (
        "nothing was sent to it" ["see port paths and serial numbers of units" "list"]
        {"if you know that this device is an ASM2464PD dock, name its ID, too" "usb_ids" "VID:PID"});
    "asmpatch::doctor::fix_command", "report this bug in asmpatch, with everything that it printed";
    "asmpatch::doctor::fix_one", ({"name one unit with {}. " if "device"} "Nothing was done");
    "asmpatch::doctor::several", (
        "each unit needs a report of its own" {": add {} with another name to each" if "report" ""}
        {"run this for each" each "device" "PORT"});
    "asmpatch::flash::all_or_none", ({"leave out {} to write the other units. " if "all_or_none"} "Nothing was written");
    "asmpatch::flash::behaviour" | "asmpatch::flash::block_differs" | "asmpatch::flash::boot_loader"
    | "asmpatch::flash::build" | "asmpatch::flash::identity" | "asmpatch::flash::not_back"
    | "asmpatch::flash::part_differs" | "asmpatch::flash::version",
        "the error names the unit's state and the commands that help; `asmpatch help recovery` lists every state";
    "asmpatch::flash::changed",
        "another program wrote to it, or another unit is on the same port now. Nothing was written: run the command \
         again";
    "asmpatch::flash::clone", (
        "one host can't tell two units with one identity apart" ["keep this one's own" "flash {FILE}"]
        "or give it a new serial number, with `flash FILE --serial TEXT` or `config set serial=TEXT`"
        {". {} writes it all the same" if "clone_identity" ""} ". Nothing was written");
    "asmpatch::flash::declined", "nothing was written; answer `y` to write";
    "asmpatch::flash::loss",
        ("nothing was written, because what the unit would lose is in no backup that asmpatch found: a backup elsewhere \
         keeps it, with `flash FILE --config-from DIR`"
        {". If there is none, {} agrees to the loss" if "clone_identity" "usb4"});
    "asmpatch::flash::neighbours", (
        "the system doesn't list the units on its buses. " {"Leave out {} to be asked" if "yes"}
        {", or add {} if no other unit has this one's serial number" if "clone_identity" "neighbours"} ". Nothing was written"
        ["see what it lists" "list"]);
    "asmpatch::flash::no_backup", (
        "nothing was written, because the firmware and the settings in its flash would be lost"
        {". {} writes it without a backup" if "no_backup"}
        ["see the commands that keep its identity, with the backups that may be its own" "doctor"]);
    "asmpatch::flash::not_asked", ({"add {} to write without a question. " if "yes"} "Nothing was written");
    "asmpatch::flash::not_rewritable", (
        "no command would write a unit that runs it again, because the boot loader does not come up while the image's \
         container is valid: you would have to open the dock and start it by hand (`asmpatch help recovery`, \"The \
         boot loader without a debug port\"). Nothing was written" ["see what the image does" "verify --boot {FILE}"]);
    "asmpatch::flash::other_backup", (
        "the backup is another unit's, or was made before this one got its serial number. Its boot loader keeps \
         nothing of its own, so without a backup it gets the identity of a new board"
        {". {} writes this backup all the same" if "clone_identity" "serial"} ". Nothing was written"
        ["see the backups that may be this unit's own" "doctor"]);
    "asmpatch::flash::other_chip",
        "the device is no ASM2464PD, or it would no longer look like one, and no option permits to write it. Nothing was \
         written";
    "asmpatch::flash::other_line",
        ("a version's last three bytes name its line: 85.00.00 is the chip maker's own, 85.4F.05 an enclosure maker's, \
         and nothing is known of 84. Nobody knows whether one line fits the other's board"
        {": add {} to write it" if "other_line"} ". Nothing was written");
    "asmpatch::flash::own_backup",
        ("nothing was written, because the unit's own identity would be lost for good: the commands below keep it"
        {". If none of the backups is this unit's, {} gives it the identity of a new board" if "clone_identity" "own-backup"});
    "asmpatch::flash::protected" | "asmpatch::registers::protected",
        "the board may tie the flash's write-protect pin; nothing was written. Only a programmer on the chip can write \
         such a flash";
    "asmpatch::flash::random", "a new board gets random numbers as its identity: run the command again. Nothing was written";
    "asmpatch::flash::serials_end",
        "begin with a wider number, as in `flash FILE --all --serials RACK-0001`, or with a smaller one. Nothing was \
         written to this unit";
    "asmpatch::flash::several",
        ("a serial number, a backup and a field are for one unit. Nothing was written"
        {"name one at a time" each "device" "PORT"});
    "asmpatch::flash::unlisted_id", (
        {"commands find a unit under that ID only with {}, this one and each one after it; or " if "usb_ids" ""}
        "leave the ID as it is. Nothing was written" {"write it with the option" "usb_ids" "VID:PID"});
    "asmpatch::flash::unproven",
        ("the unit may not work, or take firmware again only once you have opened it and started its boot loader by hand: \
         " {"add {} if that is what you want. " if "unproven"} "Nothing was written");
    "asmpatch::flash::unread_backup", (
        "nothing was written, because the unit's own identity may be in that backup, and would be lost for good: make \
         it readable" {". If it is another unit's, {} gives this one the identity of a new board" if "clone_identity" "own-backup"});
    "asmpatch::flash::untested", "measure it once it is back";
    "asmpatch::flash::unusable_backup", (
        "nothing was written, since a backup that can't be restored is useless: " OtherCable
        {"; {} writes the unit without a backup" if "no_backup"});
    "asmpatch::flash::unverified",
        ("an image that is neither known nor made by `patch` could leave the unit without firmware: "
        {"name its receipt with {}" if "receipt"} {", and the folder of your own patches with {}, or " if "dirs"}
        "make it with `patch`. Nothing was written" ["if it is your own, see where it stops on the model" "run {FILE}"]);
    "asmpatch::pcie::abort", "the device refuses the request: see its manual for what it accepts there";
    "asmpatch::pcie::completion", ("check the card's seat" ["see its link" "pcie"]);
    "asmpatch::pcie::link_down", (
        ["some builds of the open firmware leave PCIe off until a runtime switches it on; so does this" "pcie on"]
        "if the link stays down, check that the card sits in its slot, and that card and dock have their 12 V: \
         without it PCIe never leaves reset");
    "asmpatch::pcie::no_completion", (
        "the device or its link hangs" ["reset what is behind the bridge" "pcie reset"] "or power-cycle the unit");
    "asmpatch::pcie::no_power_switch",
        "nothing has changed. Only open firmware has a request for PCIe's power, F3, and not each build has it. \
         End what uses the device behind the unit, and unmount its disk, before it loses its power";
    "asmpatch::pcie::not_ready", (
        "check the device's power" ["reset what is behind the bridge" "pcie reset"] "or power-cycle the unit");
    "asmpatch::pcie::request" | "asmpatch::tiny_gpu::job", "nothing was sent; correct the request";
    "asmpatch::pcie::retry", "the device is still starting: wait a second and run the command again";
    "asmpatch::pcie::runtime",
        "nothing was sent to it: the GPU is in use. End that process first";
    "asmpatch::pcie::ssd",
        "nothing was sent to the PCIe side: the firmware drives the SSD through the same registers, and a second \
         user would corrupt the SSD's data";
    "asmpatch::pcie::stays_down",
        "check that the card sits in its slot, and that card and dock have their 12 V: without it PCIe never leaves reset";
    "asmpatch::pcie::stays_up", (
        "so asmpatch can't say whether the card is at rest: end what uses it before it loses its power"
        ["switch PCIe on again" "pcie on"]);
    "asmpatch::pcie::stopped",
        ["reset what is behind the bridge" "pcie reset"];
    "asmpatch::pcie::unclaimed", (
        "nothing was written" {". {} assigns addresses to BARs" if "assign"}
        {", and {} sends the bytes without looking" if "force"}
        ["see which BARs have addresses" "pcie"]);
    "asmpatch::pcie::unknown_behind", ("nothing was sent to the PCIe side; " Replug ", then run the command again");
    "asmpatch::pcie::unsupported", (
        "no device answers at this address" ["see which BARs have addresses" "pcie"] ["assign them" "pcie --assign"]);
    "asmpatch::registers::busy", "the flash may be worn out; run the command again";
    "asmpatch::registers::differs" | "asmpatch::registers::not_erased",
        "the flash may be worn out there; run the command again";
    "asmpatch::registers::disagrees" | "asmpatch::registers::unstable", (
        "discard what was read; " OtherCableNoHub ", and run the command again");
    "asmpatch::registers::no_flash", ("the flash doesn't answer; " Replug ", and run the command again");
    "asmpatch::registers::no_progress" | "asmpatch::registers::out_of_time", (
        "the unit answers, but too slowly: " OtherCableNoHub ", and run the command again");
    "asmpatch::registers::unprotected",
        "the new firmware works without the protection; only an accidental write could damage it";
    "asmpatch::reset::boot_loader", (
        "the reset writes nothing, so the flash was in this state before"
        ["see the commands that give it firmware, with its backups" "doctor"]);
    "asmpatch::reset::no_firmware", (
        "nothing was sent to it" ["see the commands that give it firmware, with its backups" "doctor"]
        "only a power cycle restarts it: " {"{}, or " if "level" "port-power"} ReplugIt);
    "asmpatch::reset::no_such_level",
        ("nothing was sent to it. The levels engines and pcie-power need open firmware, cpu needs any firmware"
        {"; leave {} out, and asmpatch takes what fits" if "level" ""});
    "asmpatch::reset::not_back", ("nothing was written to it; " ReplugIt ["see what is there" "list"]);
    "asmpatch::reset::not_done", ({"leave {} out, and asmpatch tries what else can help; or " if "level" ""}
        ReplugWithSupply);
    "asmpatch::reset::not_helped", ({"without {} asmpatch tries all levels; if none helps, " if "level" ""}
        ReplugWithSupply);
    "asmpatch::restore::no_folder", (
        "without a name `restore` only lists, and neither asks nor writes" {": leave {} out to see what fits" if "yes" ""}
        ["or take the oldest, which has what the unit came with" "restore --oldest"]);
    "asmpatch::restore::not_certain", (
        "digits and `restore --oldest` name only a backup that is certainly this unit's"
        ["list what fits it, with the whole commands" "restore"]);
    "asmpatch::restore::several", "name one of the folders";
    "asmpatch::sense::flash",
        "the unit's SPI flash failed: do not unplug the unit, run the command again, and see `asmpatch help recovery`";
    "asmpatch::sense::hardware", ("the unit reports a hardware fault: " ReplugIt);
    "asmpatch::sense::medium", "check the SSD behind the bridge, or replace it";
    "asmpatch::sense::no_medium", "the command needs an SSD behind the bridge";
    "asmpatch::sense::parameters", ("this firmware does not take these parameters" ["see what runs there" "list"]);
    "asmpatch::sense::past_end", "name an address within the medium";
    "asmpatch::sense::reset", "the unit was reset since the last command: run the command again";
    "asmpatch::sense::starting", "the unit is still starting: wait a few seconds and run the command again";
    "asmpatch::sense::unknown_command", (
        "what runs on the unit does not know this command" ["see what runs there" "list"]);
    "asmpatch::sense::xdata_length",
        "this firmware reads at most 255 bytes a command, or 4,096 with the length extension (patch e4-length-16)";
    "asmpatch::serve::cut_off" | "asmpatch::serve::io",
        "find out why the other program ended. The unit saw its cable pulled, so an erase or write of its flash may be \
         unfinished";
    "asmpatch::serve::in_use", "end that program, or name another path";
    "asmpatch::serve::listen",
        "the folder must exist and be writable; a socket's path has at most about 100 bytes";
    "asmpatch::serve::no_sockets",
        "`virtual serve` needs Linux or macOS; commands such as `doctor --device virtual:DIR` work here, too";
    "asmpatch::serve::not_a_socket", "name a path that does not exist yet";
    "asmpatch::serve::pairs", ({"give one {}" if "device" ""} {" for each {}, in the same order" if "listen" ""});
    "asmpatch::serve::protocol",
        "connect QEMU's `-device usb-redir` to this socket, through `-chardev socket`; `asmpatch help usbredir` shows how";
    "asmpatch::serve::stuck",
        "find out what the other program waits for. The unit saw its cable pulled, so an erase or write of its flash \
         may be unfinished";
    "asmpatch::serve::thread",
        "raise the limit of processes (`ulimit -u`, or a container's), or serve fewer units; none is served now";
    "asmpatch::serve::wait", "see the system log; start the server again";
    "asmpatch::tiny_gpu::fault", "the card is newer than this version knows, or it hangs";
    "asmpatch::tiny_gpu::left_program",
        "the program needs a RET on every path; data memory is as the program left it";
    "asmpatch::tiny_gpu::never_ends", "look for a branch that is always taken, or allow more cycles";
    "asmpatch::tiny_gpu::no_address",
        ["give it one" "pcie --assign"];
    "asmpatch::tiny_gpu::no_command", "let it wait at the bridge's NVMe submission queue, from 0x00820000 on";
    "asmpatch::tiny_gpu::no_run", "something else wrote the job's registers: run the job again";
    "asmpatch::tiny_gpu::no_source", "send from within the card's 16 MiB of memory";
    "asmpatch::tiny_gpu::no_target",
        "send to the bridge's SRAM, from 0x00200000 on, or to its NVMe completion queue";
    "asmpatch::tiny_gpu::not_master", "open the card again: that sets Bus Master Enable";
    "asmpatch::tiny_gpu::other_device", "another device has the same IDs: nothing was written to it";
    "asmpatch::tiny_gpu::status", ("the card hangs, or its link does" ["reset what is behind the bridge" "pcie reset"]);
    "asmpatch::usb::bad_status", ("the unit breaks the Bulk-Only protocol; " OtherCable ["see what is there" "list"]);
    "asmpatch::usb::busy",
        "end the program that uses it (another asmpatch, a GPU runtime, a virtual machine), then run this again";
    "asmpatch::usb::descriptors",
        "nothing was sent to it; a broken cable does this, or firmware that is not for the ASM2464PD";
    "asmpatch::usb::driver",
        "on Windows the unit needs the driver WinUSB: `asmpatch help platforms` describes how to install it, and how to remove \
         it";
    "asmpatch::usb::gone", (PlugIn ["see what is there" "list"]);
    "asmpatch::usb::no_seat",
        "over SSH nobody sits at the machine: run the command with sudo, or give a group the unit: put \
         `GROUP=\"plugdev\"` into the rule, and your user into that group";
    "asmpatch::usb::no_streams",
        ({"leave {} out to use Bulk-Only; " if "transport" ""}
        "the host controller has no streams, or its driver switches them off");
    "asmpatch::usb::no_uas" | "asmpatch::virtual_unit::no_uas",
        ({"leave {} out to use Bulk-Only; " if "transport" ""} "the boot loader and units at a slow port have no UAS");
    "asmpatch::usb::not_replugged", (
        "udev applies its rules when a unit appears" ["let it read them again" "$ sudo udevadm control --reload"]
        "then " Replug);
    "asmpatch::usb::other_protocol", ("nothing was sent to it" ["see what runs on each unit" "list"]);
    "asmpatch::usb::permission", (
        ["on Linux a udev rule gives it" "udev | sudo tee /etc/udev/rules.d/70-asmpatch.rules"]
        ["then let udev read them" "$ sudo udevadm control --reload"] "then " PlugIn
        "; on macOS only root may take a unit from the system's disk driver");
    "asmpatch::usb::phase",
        "host and unit disagreed about the data; the unit was reset, so run the command again";
    "asmpatch::usb::port_left_off",
        "unplug the hub from the host and from its own supply, wait five seconds, plug both in again. A tool that \
         switches ports of a hub, such as uhubctl, can switch this one on";
    "asmpatch::usb::protocol", ("the unit breaks the protocol; " OtherCable {", or {}" if "transport" "bot"});
    "asmpatch::usb::stale_rule", (
        ["write them again" "udev | sudo tee /etc/udev/rules.d/70-asmpatch.rules"]
        {"for an ID that asmpatch does not know, add {} to that" if "usb_ids"}
        ["then let udev read them" "$ sudo udevadm control --reload"]
        "then plug the unit in again");
    "asmpatch::usb::stall", Replug;
    "asmpatch::usb::tag", "the unit was reset; run the command again";
    "asmpatch::usb::timeout", (
        "the unit was reset" ["if the next command fails too, see what of it hangs, and what helps" "doctor"]);
    "asmpatch::usb::unavailable", ("on Linux /dev/bus/usb must be there"
        {"; {} needs no USB at all" if "device" "virtual:DIR"});
    "asmpatch::virtual::dock", ("name a virtual unit" {", as in {}" if "device" "virtual:u"});
    "asmpatch::virtual_unit::absent",
        "its bridge.toml says so: `state = \"absent\"`, or a fault that took it away without `back-after-ms`";
    "asmpatch::virtual_unit::busy", "wait for the other command to end, or name another folder";
    "asmpatch::virtual_unit::factory",
        "the folder's disk may be full; delete flash.bin there and try again";
    "asmpatch::virtual_unit::file",
        "`virtual:DIR` needs a folder that you may write to; the unit's flash lives in it";
    "asmpatch::virtual_unit::flash_size",
        "delete the file to start with a new unit, or name another folder";
    "asmpatch::virtual_unit::foreign",
        ("nothing was written there: name a new folder, or an empty one" {", as in {}" if "device" "virtual:u"});
    "asmpatch::virtual_unit::mute",
        "the practice image of an older asmpatch does not come up with this one: delete flash.bin in the unit's folder for \
         a new unit. To keep the flash and write another image, set `state = \"boot-loader\"` in its bridge.toml";
    "asmpatch::virtual_unit::name", ("name a folder with a shorter name" {", as in {}" if "device" "virtual:u"});
    "asmpatch::virtual_unit::not_replugged",
        "only `virtual serve` replugs a unit; wait for another command on this unit to end";
    "asmpatch::virtual_unit::not_served",
        "nothing to do: without a server, a unit loses its power when a command ends, and gets it back when the next \
         command begins";
    "asmpatch::virtual_unit::other_protocol",
        "nothing was sent to it; flash an image of the open firmware first";
    "asmpatch::virtual_unit::replug_file",
        "the request is a file in the unit's folder, which you must be able to write to";
    "asmpatch::virtual_unit::scenario", (
        "`asmpatch help virtual-unit` lists the keys; without the file the defaults apply"
        ["to write it in any shell" "virtual set {KEY=VALUE}"]);
    "asmpatch::xdata::flash_controller",
        "nothing was sent. A wrong byte there can leave the unit without firmware and without its identity. `flash` \
         and `restore` write the flash, after a backup and a question; `backup` reads it";
    "asmpatch::xdata::past_end", "nothing was sent: XDATA ends at 0xFFFF; ask for fewer bytes";
    "asmpatch::xdata::ssd",
        "the firmware drives the SSD through the same registers: two users would corrupt each other's requests, and with \
         them the SSD's data. Nothing was written; `xdata read` works";
    "asmpatch::xdata::unknown_behind", ("nothing was written; " Replug ", then run the command again");
];
