//! The table's entries for files, images, patches, downloads and asmpatch itself.

use std::borrow::Cow;

use super::{AdvicePart, ErrorEntry};

/// Sorted by the first code.
pub(in crate::cli::words::errors) const ENTRIES: &[ErrorEntry] = entries![
    "asmpatch::archive::damaged",
        "the archive is damaged or truncated; download it again, or from another mirror";
    "asmpatch::archive::encrypted", (
        "unpack it with its password" {", and give the image with {}" if "from" "FILE.bin"});
    "asmpatch::archive::expands",
        "no firmware is that large: the archive is damaged, or made to fill memory; get it from another mirror";
    "asmpatch::archive::members",
        "no firmware archive has so many: it is damaged, or made to fill memory; get it from another mirror";
    "asmpatch::archive::missing",
        ("the mirror now serves another archive"
        {"; if one of these is the image, unpack it and use {}" if "from" "FILE.bin"});
    "asmpatch::archive::twice",
        "programs disagree on which of them counts, so asmpatch takes neither; get the archive from another mirror";
    "asmpatch::archive::unsafe_name",
        "an archive with \"..\" or absolute names overwrites files elsewhere; get it from another mirror";
    "asmpatch::archive::unsupported",
        ("asmpatch unpacks zip archives, stored or deflated: unpack this one by hand"
        {", and give the image in it with {}" if "from" "FILE.bin"});
    "asmpatch::bug", "please report it with the command and everything it printed";
    "asmpatch::cache::access", ("make it a folder that you may write to" {", or name another with {}" if "cache_dir"});
    "asmpatch::cache::no_folder", ("set HOME" {", or name a folder with {}" if "cache_dir"});
    "asmpatch::completions::folder" | "asmpatch::man::write", "name a folder that you may write to";
    "asmpatch::config::checksum", (
        "the chip ignores a block whose checksum is wrong; `restore` writes a backup back"
        ["list the backups" "backup --list"]);
    "asmpatch::config::kind", "`asmpatch help formats` lists the fields and their values";
    "asmpatch::config::length",
        ["read the unit again" "backup"];
    "asmpatch::config::magic",
        "an erased flash reads as 0xff here; the chip then uses the identity in its ROM";
    "asmpatch::config::no_block", (
        "the boot loader can't read the flash, so the unit needs firmware first"
        ["see the commands that give it firmware, with its backups" "doctor"]);
    "asmpatch::config::no_firmware",
        "changing a field erases the whole slot, so the firmware has to be written again too: write both together, \
         with `flash FILE --serial TEXT`. Nothing was written";
    "asmpatch::config::text", "shorten the text, and use printable ASCII only";
    "asmpatch::demo::check",
        "this is a bug in asmpatch: please report it with the output of `demo -v`";
    "asmpatch::demo::setup",
        ("the demo needs a folder to write to" {"; {} names another one" if "keep"});
    "asmpatch::devices::duplicate", "each ID has one entry: remove this one";
    "asmpatch::devices::length", "correct the entry; `asmpatch help formats` describes every key";
    "asmpatch::doctor::not_a_report",
        "name a file that `doctor --report FILE` wrote";
    "asmpatch::doctor::old_report", "ask for a new report: any version from now on reads it";
    "asmpatch::elf::empty", "check that the code is in an area that the linker keeps";
    "asmpatch::elf::machine",
        "code for another processor would crash the chip; build it with SDCC for mcs51";
    "asmpatch::elf::malformed",
        "link with sdld, and make ELF of its Intel HEX: `objcopy -I ihex -O elf32-little --alt-machine-code=165` does that";
    "asmpatch::elf::no_image", (
        "the expected bytes come from the image" {": name it with {}" if "image" ""}
        ["or fetch the default one" "download"]);
    "asmpatch::elf::outside",
        "the common area reaches from 0x0 to 0x7FFF, a bank from 0x8000 to 0xFF6A (bank 1 also as 0x18000 to 0x1FF6A); \
         the image must be long enough, too";
    "asmpatch::elf::overlap" | "asmpatch::wrap::overlap",
        "asmpatch can't tell which of them should win; link them apart";
    "asmpatch::elf::relocations",
        "the addresses in the code are not final yet; link it with sdld for the place where it will run";
    "asmpatch::elf::same", "there is nothing to patch";
    "asmpatch::elf::site",
        "8051 code runs only at the address it was linked for: link it for the site (`sdld -b AREA=ADDRESS`, or \
         `.org`), or name the site where it is";
    "asmpatch::elf::truncated", "the file is cut off; build it again";
    "asmpatch::fetch::empty", "the file was never written; fetch it again";
    "asmpatch::fetch::half",
        "the vendor's firmware has two banks, and doesn't start with one alone: fetch the whole image";
    "asmpatch::fetch::html" | "asmpatch::http::html",
        "the server wants a browser: download the file with one, and name that file";
    "asmpatch::fetch::library", "give the vendor's updater, an archive or the image itself; don't run what came with it";
    "asmpatch::fetch::md5_only",
        "MD5 can be forged: somebody made this file look like the image, or the manifest's sha256 is wrong. Do not \
         flash it";
    "asmpatch::fetch::mirrors", ("each reason is below" ["give a copy from elsewhere" "download {ID} --from {COPY}"]);
    "asmpatch::fetch::nested", ("unpack it by hand" {", and give the image with {}" if "from" "FILE.bin"});
    "asmpatch::fetch::no_mirrors",
        ["give a file or an address that has it" "download {ID} --from {COPY}"];
    "asmpatch::fetch::no_network", (
        "no mirror could be reached: check the network and the proxy settings (HTTPS_PROXY); each reason is below"
        ["a copy from elsewhere needs no network" "download {ID} --from {COPY}"]);
    "asmpatch::fetch::not_inside",
        ("name one of these if it is a known image" {", or add a manifest for it with {}" if "manifest_dir"}
        ". Don't run programs to get at an image");
    "asmpatch::fetch::offline", (
        {"run the command once without {}" if "offline"}
        ["or give a file that has the image" "download {ID} --from {COPY}"]);
    "asmpatch::fetch::offline_url", ({"leave out {}" if "offline"} {" or {}" if "from" ""} ", or give a file");
    "asmpatch::fetch::other_file",
        "it holds no firmware: give the vendor's archive or updater, or the image itself";
    "asmpatch::fetch::other_image",
        {"if it is the one that you want, download it under its own name" "image" "ID"};
    "asmpatch::fetch::other_kind", (
        "it is not damaged, and `wrap` makes an image of code. Or fetch the image itself"
        ["see what is in it" "info {FILE}"]);
    "asmpatch::fetch::other_version", (
        "length, magic, checksum and CRC-32 are valid, so it is not damaged: it is not the image that you asked for"
        {". {} adds one to those that are known" if "manifest_dir"} ["list the known images" "download --list"]);
    "asmpatch::fetch::sha256",
        "it was changed or damaged: do not flash it. Fetch it again, from another mirror if there is one";
    "asmpatch::fetch::size",
        "it is truncated, or another file altogether; fetch it again, or name another image";
    "asmpatch::fetch::too_large",
        ("no firmware archive is that large; unpack it" {", and give the image with {}" if "from" "FILE.bin"});
    "asmpatch::file::address",
        "fetch it first: `download ID --from URL`. The digest decides whether it is that image";
    "asmpatch::file::exists", (
        "name another file" {", or replace it with {}" if "force"} {"with a name that is free" "output" "FREE"});
    "asmpatch::file::folder", "name the file in it";
    "asmpatch::file::input_is_output", ("the original would be lost: name another file" {" after {}" if "output" ""});
    "asmpatch::file::irregular",
        "asmpatch never writes to or replaces devices, pipes, links and folders; name \
         another file";
    "asmpatch::file::name", "choose a shorter name; nothing was written";
    "asmpatch::file::not_found", "check the name";
    "asmpatch::file::not_regular", "asmpatch reads no pipes and devices here: remove it, or name another folder";
    "asmpatch::file::not_text" | "asmpatch::file::oversized", "check the name: this is another kind of file";
    "asmpatch::file::read", "the file is there: check that you may read it, and that its disk works";
    "asmpatch::file::standard_input",
        "save it to a file, and name that: a command that asks reads the answer from standard input";
    "asmpatch::file::write",
        "check that the folder exists, that you may write to it, and that the disk has room; no partial file is left";
    "asmpatch::help::page_elsewhere",
        "it is for those who build on asmpatch: read it in the repository, or in the docs folder of an installed package";
    "asmpatch::help::section", ("the page's name alone lists its sections" {", and {} prints the whole page" if "all"});
    "asmpatch::help::topic",
        "`asmpatch help` lists the commands, and `asmpatch help README` the pages; a code stands in an error's first line";
    "asmpatch::http::connect",
        "check the network, the proxy settings (HTTPS_PROXY) and the address";
    "asmpatch::http::cut_off", "run the command again, or use another mirror";
    "asmpatch::http::deadline",
        "the connection or the server is too slow: use another mirror";
    "asmpatch::http::malformed",
        "something other than a web server answers there, or a proxy in between: check the host and the port, or use \
         another mirror";
    "asmpatch::http::proxy",
        "a proxy is HOST:PORT or http://HOST:PORT; correct the variable, or unset it to download without a proxy";
    "asmpatch::http::redirects",
        "the server redirects in a circle: use another mirror, or a browser";
    "asmpatch::http::request", "an address is http://HOST/PATH or https://HOST/PATH";
    "asmpatch::http::status",
        "use another mirror, or a browser; after 429 wait some minutes, and after 500 and above try again later";
    "asmpatch::http::timeout",
        "run the command again, or use another mirror";
    "asmpatch::http::tls",
        "somebody may be listening in, the clock may be wrong, or the system lacks the public certificate authorities \
         (package ca-certificates); a browser may do without. Where a company's proxy signs connections anew, its \
         issuer is unknown here: on Linux set SSL_CERT_FILE to a file with its certificate (PEM), elsewhere add that to \
         the system's";
    "asmpatch::http::too_large", "no firmware is that large, so this is another file; check the address";
    "asmpatch::image::checksum" | "asmpatch::image::crc", (
        "bytes of the image were changed; the chip's boot loader would not start it"
        ["fetch it again" "download {IMAGE}"] ["list the known images" "download --list"]);
    "asmpatch::image::empty", (
        "the file was probably never written" ["fetch it again" "download {IMAGE}"]
        ["list the known images" "download --list"]);
    "asmpatch::image::is_archive",
        "`download --from FILE` takes a known image out of a zip archive or an updater; unpack any other archive first";
    "asmpatch::image::is_backup",
        ["write it to the unit again" "restore {FILE}"];
    "asmpatch::image::is_code",
        "`wrap FILE -o IMAGE` makes an image of it";
    "asmpatch::image::is_flash",
        "only a copy of a flash from its first byte on, with its bytes in their order, can be used: `restore COPY`, or \
         `flash IMAGE --config-from COPY`";
    "asmpatch::image::is_other",
        "no command takes it in place of an image; an image is what `download` fetches, or what `wrap` makes of code";
    "asmpatch::image::is_pointer",
        "Git keeps the content elsewhere: `git lfs pull` or `git annex get FILE` fetches it";
    "asmpatch::image::is_receipt", "name the image that it is about: the same name without `.toml`";
    "asmpatch::image::is_text",
        "an image is what `download` fetches, or what `wrap` makes of Intel HEX, ELF or raw code";
    "asmpatch::image::length", (
        "a shorter file is truncated, and a longer one has something behind its image or is none: check that it is an \
         ASM2464PD image"
        ["or fetch it again" "download {IMAGE}"] ["list the known images" "download --list"]);
    "asmpatch::image::magic",
        "images for other ASMedia chips have another magic; the chip's boot loader would not start this one";
    "asmpatch::image::open_too_long",
        "open firmware is written to the flash's first part alone: build it smaller, or `download` a build that fits";
    "asmpatch::image::oversized", "this is not an ASM2464PD image: the largest known has 98,016 bytes";
    "asmpatch::info::no_slot", "only a copy of a flash has slots, as programmers read it, with an image in each or in one";
    "asmpatch::interrupted", "nothing is left half done; run the command again";
    "asmpatch::log::file", "nothing was done; name a regular file in a folder that you may write to";
    "asmpatch::manifest::duplicate",
        "each image has one id and one digest: with both it adds mirrors to the known image; give another image its own";
    "asmpatch::manifest::practice", (
        "commands that take an image take it by this name" ["see what it is" "info practice"]);
    "asmpatch::manifest::read", ({"{} takes" if "manifest_dir"} " a readable folder with one .toml file per image");
    "asmpatch::manifest::unknown_image", ("name a known image" {", or add a manifest for it with {}" if "manifest_dir"});
    "asmpatch::manifest::value",
        "no download can succeed with this value; `asmpatch help formats` describes every key";
    "asmpatch::patch::already_patched", (
        ["to change the set, undo the patches first" "unpatch {FILE} -o {ORIGINAL}"]
        {"with the same {} if it has patches of your own; " if "dirs" ""} "then patch the original");
    "asmpatch::patch::config_conflict", "leave one of them out";
    "asmpatch::patch::conflicts", ("leave one of them out" {"; with {} the set starts empty" if "no_defaults"});
    "asmpatch::patch::duplicate_id", "receipts name patches by id, so each needs its own; rename the new one";
    "asmpatch::patch::empty",
        "it would do nothing; give it [[images]] with [[images.hunks]], or a [config]: `asmpatch help formats`";
    "asmpatch::patch::hunk",
        "a hunk replaces one byte or more with as many others; leave out the bytes that stay the same";
    "asmpatch::patch::hunks_overlap", "the result would depend on their order; merge them into one hunk";
    "asmpatch::patch::image_twice",
        "asmpatch can't tell which hunks apply; put them all under one [[images]]";
    "asmpatch::patch::instruction",
        "an instruction has at most three bytes: set `instruction` to at most two bytes before `at`, or leave it out";
    "asmpatch::patch::mismatch",
        "the hunk was written for other code; nothing was changed. Correct the patch, or the image's digest in it";
    "asmpatch::patch::missing",
        ({"name the folder of their files with {}, or " if "dirs"} "put the files beside the receipt");
    "asmpatch::patch::none", ({"with {}, " if "no_defaults"} "name at least one" {" with {}" if "add"});
    "asmpatch::patch::not_for_image", (
        "no GPU runtime drives a version of the vendor's firmware other than 240417, so no other has patches. For any \
         other use, leave the patch out" ["for a GPU runtime, flash the open firmware" "flash ed4e39b"]
        ["or patch 240417" "patch 240417 -o {OUT}"]);
    "asmpatch::patch::not_patched", "there is nothing to undo: the file is the original already";
    "asmpatch::patch::overlap",
        "the image has room for only one of them; leave the other out, or write one patch that does both";
    "asmpatch::patch::past_end",
        "checksum and CRC follow the body, and asmpatch computes them anew; correct the hunk's address";
    "asmpatch::patch::requires", ("one without the other is untested" {"; add the other with {}" if "add"});
    "asmpatch::patch::unknown_changes", (
        "nothing was changed. "
        {"If the changes are patches of your own, name their folder with {}; otherwise " if "dirs"}
        "the file is damaged: fetch the image again, with `download ID`" ["list the known images" "download --list"]);
    "asmpatch::patch::unknown_id", (
        {"{} adds a folder of your own" if "dirs"} ["list the known patches" "patch --list"]);
    "asmpatch::patch::unknown_image", (
        "nothing was changed. No GPU runtime drives a version of the vendor's firmware other than 240417, so no other \
         has patches" {"; {} adds patches of your own" if "dirs"}
        ["for a GPU runtime, flash the open firmware" "flash ed4e39b"]
        ["or patch 240417" "patch 240417 -o {OUT}"]);
    "asmpatch::pcap::busy", "wait for the other command to end, or name another file";
    "asmpatch::pcap::file", "name a file in a folder that you may write to; a symbolic link is not followed";
    "asmpatch::pcap::not_a_capture", "name a new file, or an earlier capture, which is replaced";
    "asmpatch::receipt::format",
        "use the version of asmpatch that wrote it, or patch the original image again with this one";
    "asmpatch::run::data_out_left", ({"give one {}" if "data_out" ""}
        {" for each {} that sends data, in the same order" if "cdb" ""});
    "asmpatch::run::data_out_length",
        "the firmware would wait for the rest, or leave some of it; give a file of that length, or change the length \
         in the CDB";
    "asmpatch::run::in_over_uas", ({"add {}; " if "transport" "bot"}
        "over UAS the firmware alone decides how much it sends");
    "asmpatch::run::no_data_out", ("name a file of exactly that length" {" with {}" if "data_out"});
    "asmpatch::run::no_lines", "compile and link with `sdcc --debug`, and name the .cdb file that it writes";
    "asmpatch::run::no_scsi",
        ("send control requests"
        {": {} reads four bytes of XDATA at 0x7000" if "control" "\"c0 e4 00 70 00 00 04 00\""});
    "asmpatch::run::no_uas", ({"leave out {}" if "transport" ""} {", or use {}" if "transport" "bot"});
    "asmpatch::run::same_output", ({"give {}" if "profile" ""} {" and {} a file each" if "coverage" ""});
    "asmpatch::symbols::malformed", "the file is damaged or cut off; link the firmware again";
    "asmpatch::symbols::too_many", "no firmware of 98,006 bytes has so many; check the file";
    "asmpatch::symbols::unknown_form", "SDCC writes NAME.map beside its output, and NAME.cdb with `sdcc --debug`";
    "asmpatch::toml::invalid", "correct the marked place; `asmpatch help formats` describes every key";
    "asmpatch::updater::endless",
        ("the file was made to keep a search busy forever; give the image itself" {" with {}" if "from" "FILE.bin"});
    "asmpatch::updater::no_image",
        ("don't run it. asmpatch can't search updaters that pack their files: open it with an archiver such as 7-Zip, and \
         give the .bin inside" {" with {}" if "from" ""});
    "asmpatch::updater::not_pe",
        ("the updater is damaged or truncated; download it again, or give the image itself"
        {" with {}" if "from" "FILE.bin"});
    "asmpatch::usage::placeholder", "put the value itself in its place. Nothing was done";
    "asmpatch::verify::hunk",
        "something other than the patches changed these bytes; patch the original again";
    "asmpatch::verify::other_base", "verify it against the image that it was made from";
    "asmpatch::verify::other_bytes",
        "patch the original again; if the changes are your own, keep them as a patch: `make-patch`";
    "asmpatch::verify::other_receipt",
        ("the image itself may be good: " {"name its own receipt with {}, or " if "receipt"} "move this one away");
    "asmpatch::verify::patch_digest",
        "patch the original again, or verify with the version of asmpatch that the receipt names";
    "asmpatch::verify::patch_missing", "patch the original again with the receipt's patches";
    "asmpatch::verify::patch_set", "nobody tested these patches together; patch the original again";
    "asmpatch::verify::patch_unlisted", "the receipt belongs to another file";
    "asmpatch::verify::patch_unvouched",
        ("whoever made the image may have made the patch: read what it changes"
        {". If you trust it, name its file's folder with {}" if "dirs"});
    "asmpatch::verify::receipt_config",
        "flashing would change other fields of the unit than the patches name; patch the original again";
    "asmpatch::verify::receipt_digest",
        "the file was changed after it was written, or the receipt belongs to another file";
    "asmpatch::verify::unknown_base", (
        "bytes outside the patches were changed, or it is another version"
        {". Name the image that it was with {}, and have it in the cache: then every differing byte is shown" if "image"}
        {". An image with patches of your own needs {}" if "dirs"} ["list the known images" "download --list"]);
    "asmpatch::verify::unknown_image", ("name a known image" ["see which one a file is" "info {FILE}"]);
    "asmpatch::verify::unknown_patch",
        ({"name the folder of its file with {}, or " if "dirs"} "put the file beside the receipt");
    "asmpatch::wrap::hex", "the file is damaged, or is not Intel HEX; write it again with the linker";
    "asmpatch::wrap::hex_end", "the file is cut off; write it again with the linker";
    "asmpatch::wrap::is_image", ("there is nothing to wrap" ["see what it is" "info {FILE}"]);
    "asmpatch::wrap::no_code",
        "asmpatch wraps raw bytes, Intel HEX and ELF: SDCC makes them from source (`asmpatch help firmware-authors`)";
    "asmpatch::wrap::no_reset_vector",
        "link the whole program, with its reset vector, for address 0; a piece of code is a patch: `make-patch`";
    "asmpatch::wrap::outside",
        "the common area reaches from 0x0 to 0x7FFF, bank 0 from 0x8000 to 0xFF6A, bank 1 from 0x18000 to 0x1FF6A";
    "asmpatch::wrap::text",
        "asmpatch wraps raw bytes, Intel HEX and ELF: SDCC makes them from source (`asmpatch help firmware-authors`), and \
         `objcopy -I srec -O ihex` makes Intel HEX from S-records";
];
