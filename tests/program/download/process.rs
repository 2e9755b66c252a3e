//! Downloads as a user sees them: exit statuses, and the files left behind.
use std::fs;
use std::path::Path;
use std::process::Output;

use asm2464_chip::practice;

use crate::program::download::server::{Server, send, send_file};
use crate::program::download::{image, manifest, zip_of};
use crate::program::process::{command, good, json, run, text};
use crate::{chip_images, side_by_side};

/// A folder with `manifests/test.toml`, which names these mirrors.
fn workspace(urls: &[String]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("manifests")).unwrap();
    fs::write(folder.path().join("manifests/test.toml"), manifest(urls)).unwrap();
    folder
}

/// Downloads the image of the folder's manifest.
const DOWNLOAD: [&str; 4] = ["download", "test", "--manifest-dir", "manifests"];

fn download(folder: &Path, more: &[&str]) -> Output {
    run(folder, &[&DOWNLOAD, more].concat())
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_download_prints_where_the_image_is() {
    let zip = zip_of("fw/image.bin", &image());
    let server = Server::start(move |_, stream| send_file(stream, &zip));
    let folder = workspace(&[server.url("/fw.zip")]);
    let output = download(folder.path(), &["-o", "out.bin"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(output.stdout, b"out.bin\n");
    assert_eq!(fs::read(folder.path().join("out.bin")).unwrap(), image());
    let report = json(folder.path(), &[&DOWNLOAD[..], &["--offline", "--json"]].concat());
    assert_eq!((report["image"].as_str(), report["origin"].as_str()), (Some("test"), Some("cache")));
}

#[test]
fn an_output_file_with_other_content_is_only_replaced_with_force() {
    let server = Server::start(|_, stream| send_file(stream, &image()));
    let folder = workspace(&[]);
    let out = folder.path().join("out.bin");
    fs::write(&out, b"mine").unwrap();
    let url = server.url("/fw.bin");
    assert_eq!(download(folder.path(), &["--from", &url, "-o", "out.bin"]).status.code(), Some(5));
    assert_eq!(fs::read(&out).unwrap(), b"mine");
    assert_eq!(download(folder.path(), &["-o", "out.bin", "--force"]).status.code(), Some(0));
    assert_eq!(fs::read(&out).unwrap(), image());
    assert_eq!(download(folder.path(), &["-o", "out.bin"]).status.code(), Some(0));
}

#[test]
fn a_file_that_is_not_the_open_image_is_refused_without_the_way_to_build_what_a_mirror_has() {
    for (len, code) in [(9207, "asmpatch::fetch::sha256"), (9206, "asmpatch::fetch::size")] {
        let server = Server::start(move |_, stream| send_file(stream, &vec![1; len]));
        let folder = tempfile::tempdir().unwrap();
        let url = server.url("/firmware_wrapped.bin");
        let output = run(folder.path(), &["download", "ed4e39b", "--from", &url, "-o", "open.bin"]);
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        let printed = stderr(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(printed.contains(code) && !printed.contains("git clone"), "{printed}");
        assert!(!folder.path().join("open.bin").exists());
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_NEW_IMAGE"]
fn the_newest_open_firmware_takes_one_download_and_one_flash() {
    let image = chip_images::file("ASMPATCH_OPEN_NEW_IMAGE");
    let server = Server::start(move |_, stream| send_file(stream, &image));
    let folder = tempfile::tempdir().unwrap();
    let url = server.url("/firmware_wrapped.bin");
    good(folder.path(), &["download", "ed4e39b", "--from", &url]);
    let flashed = good(folder.path(), &["flash", "ed4e39b", "--device", "virtual:dock", "--yes"]);
    assert!(flashed.contains("  image    ed4e39b: "), "{flashed}");
    let listed = good(folder.path(), &["list", "--device", "virtual:dock"]);
    assert!(listed.contains("custom ed4e39b7-CLEAN"), "{listed}");
    // Doctor reports no missing feature of this build.
    let doctor = text(&run(folder.path(), &["doctor", "--device", "virtual:dock"]));
    assert!(!doctor.contains("E4 fails"), "{doctor}");
}

#[test]
fn an_id_that_is_no_file_is_fetched_for_a_flash_and_if_that_fails_the_unit_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let flash = |image: &str| {
        let mut command = command(folder.path(), &["flash", image, "--device", "virtual:dock", "--yes"]);
        // Nobody listens there.
        command.env("HTTPS_PROXY", "http://127.0.0.1:1").env("ASMPATCH_CACHE_DIR", folder.path().join("cache"));
        command.output().unwrap()
    };
    let output = flash("ed4e39b");
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    assert!(stderr(&output).contains("image ed4e39b"), "{}", stderr(&output));
    assert!(!folder.path().join("dock").exists(), "no unit was touched");
    let output = flash("ed4e39");
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("did you mean `ed4e39b`?"), "{}", stderr(&output));
    // A file of that name comes first.
    fs::write(folder.path().join("ed4e39b"), practice::image().to_file()).unwrap();
    let output = flash("ed4e39b");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("the file of this name"), "{}", stderr(&output));
}

/// Downloads from an address with `HTTP_PROXY` and `NO_PROXY` set.
fn through_proxy(folder: &Path, proxy: &Server, no_proxy: &str, url: &str) -> Output {
    let mut command = command(folder, &DOWNLOAD);
    command.env("HTTP_PROXY", proxy.url("")).env("NO_PROXY", no_proxy).args(["--from", url]).output().unwrap()
}

#[test]
fn a_proxy_from_the_environment_carries_the_download_unless_no_proxy_names_the_host() {
    let proxy = Server::start(|request, stream| {
        assert_eq!(request.path, "http://mirror.invalid/fw.bin");
        send_file(stream, &image());
    });
    let folder = workspace(&[]);
    let output = through_proxy(folder.path(), &proxy, "invalid", "http://mirror.invalid/fw.bin");
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    assert!(stderr(&output).contains("asmpatch::http::connect"), "{}", stderr(&output));
    assert_eq!(proxy.requests().len(), 0);
    let output = through_proxy(folder.path(), &proxy, "", "http://mirror.invalid/fw.bin");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(proxy.requests().len(), 1);
}

#[test]
fn loopback_needs_no_proxy_and_every_hop_of_a_redirect_decides_for_itself() {
    let mirror = Server::start(|request, stream| match request.path.as_str() {
        "/out" => send(stream, "302 Found\r\nLocation: http://mirror.invalid/fw.bin\r\nContent-Length: 0", b""),
        _ => send_file(stream, &image()),
    });
    let here = mirror.url("/fw.bin");
    let proxy = Server::start(move |request, stream| match request.path.as_str() {
        "http://mirror.invalid/in" => send(stream, &format!("302 Found\r\nLocation: {here}\r\nContent-Length: 0"), b""),
        "http://mirror.invalid/fw.bin" => send_file(stream, &image()),
        other => panic!("the proxy is asked for {other}"),
    });
    for (url, through) in [(&*mirror.url("/fw.bin"), 0), (&mirror.url("/out"), 1), ("http://mirror.invalid/in", 2)] {
        let folder = workspace(&[]);
        let output = through_proxy(folder.path(), &proxy, "", url);
        assert_eq!(output.status.code(), Some(0), "{url}: {}", stderr(&output));
        assert_eq!(proxy.requests().len(), through, "{url}");
    }
}

#[test]
fn a_scheme_in_capitals_is_an_address() {
    let server = Server::start(|_, stream| send_file(stream, &image()));
    let folder = workspace(&[]);
    let output = download(folder.path(), &["--from", &server.url("/fw.bin").replace("http", "HTTP")]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn a_password_is_sent_and_never_printed() {
    let server = Server::start(|request, stream| {
        // me:secret
        assert_eq!(request.header("authorization"), Some("Basic bWU6c2VjcmV0"));
        match request.path.as_str() {
            "/fw.bin" => send_file(stream, &image()),
            "/other.bin" => send_file(stream, b"other"),
            "/moved" => send(stream, "301 Moved\r\nLocation: /gone\r\nContent-Length: 0", b""),
            "/cut" => send(stream, "200 OK\r\nContent-Length: 9", b""),
            _ => send(stream, "404 Not Found\r\nContent-Length: 0", b""),
        }
    });
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let of = |path: &str| server.url(path).replace("://", "://me:secret@");
    let elsewhere = format!("http://me:secret@{nobody}/fw.bin");
    let urls = [of("/other.bin"), of("/gone"), of("/moved"), of("/cut"), elsewhere, of("/fw.bin")];
    side_by_side(urls, |url| {
        let folder = workspace(&[]);
        for more in [&["-vv"][..], &["--json", "-vv"], &["--json", "--offline"]] {
            let output = download(folder.path(), &[&["--from", &url], more].concat());
            let text = text(&output);
            assert!(text.contains("***@") && !text.contains("secret"), "{url} {more:?}: {text}");
        }
    });
}

#[test]
fn an_over_long_address_is_not_printed_back() {
    let server = Server::start(|_, stream| send(stream, "404 Not Found\r\nContent-Length: 0", b""));
    side_by_side([5_000, 100_000], |length| {
        let folder = workspace(&[]);
        let output = download(folder.path(), &["--from", &server.url(&format!("/{}", "a".repeat(length)))]);
        assert!(matches!(output.status.code(), Some(3 | 6)), "{}", stderr(&output));
        assert!(stderr(&output).len() < 1000, "{}", stderr(&output));
    });
}

#[test]
fn a_proxy_that_does_not_answer_is_named_without_its_password() {
    let folder = workspace(&[]);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (variable, scheme) in [("HTTPS_PROXY", "https"), ("HTTP_PROXY", "http"), ("ALL_PROXY", "http")] {
        let run = |no_proxy: &str| {
            let mut command = command(folder.path(), &DOWNLOAD);
            for other in ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy", "all_proxy"] {
                command.env_remove(other);
            }
            command.env(variable, format!("http://me:secret@{nobody}")).env("NO_PROXY", no_proxy);
            stderr(&command.args(["--from", &format!("{scheme}://mirror.invalid/fw.bin")]).output().unwrap())
        };
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let said = words(&run(""));
        assert!(said.contains(&format!("through the proxy {variable}=http://{nobody}")), "{said}");
        assert!(said.contains("mirror.invalid/fw.bin") && !said.contains("secret"), "{said}");
        assert!(!run("mirror.invalid").contains(&nobody.to_string()), "NO_PROXY names the host");
    }
}

#[test]
fn the_name_that_was_not_found_is_named_whichever_side_of_a_proxy_it_is_on() {
    let folder = workspace(&[]);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let local = [format!("socks5://{nobody}"), format!("socks4://{nobody}")];
    let proxies = [("", "mirror.invalid"), ("http://proxy.invalid:1", "proxy.invalid")];
    for (proxy, missing) in local.iter().map(|proxy| (&**proxy, "mirror.invalid")).chain(proxies) {
        let mut command = command(folder.path(), &DOWNLOAD);
        for other in ["HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy", "all_proxy", "NO_PROXY", "no_proxy"] {
            command.env_remove(other);
        }
        command.env("ALL_PROXY", proxy).args(["--from", "http://mirror.invalid/fw.bin"]);
        let said = stderr(&command.output().unwrap()).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(&format!(": {missing}: failed to lookup")), "{proxy}: {said}");
    }
}

#[test]
fn a_proxy_variable_that_is_no_address_ends_the_download_and_its_password_is_not_shown() {
    let folder = workspace(&[]);
    let mut command = command(folder.path(), &DOWNLOAD);
    command.env("HTTP_PROXY", "ftp://me:secret@proxy:21").env("NO_PROXY", "");
    let output = command.args(["--from", "http://mirror.invalid/fw.bin"]).output().unwrap();
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    assert!(stderr(&output).contains("asmpatch::http::proxy"), "{}", stderr(&output));
    assert!(stderr(&output).contains("HTTP_PROXY=***@proxy:21"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("secret"), "{}", stderr(&output));
}

// Unix only: limits and signals.
#[cfg(unix)]
mod unix {
    use std::process::{Command, Stdio};
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::program::download::{files, nothing_is_kept};
    use crate::program::process::PROGRAM;

    #[test]
    fn a_download_that_waits_for_another_ones_says_so_and_names_it() {
        let zip = super::super::zip_of("fw/image.bin", &image());
        let server = Server::start(move |_, stream| {
            std::thread::sleep(std::time::Duration::from_secs(3));
            send_file(stream, &zip);
        });
        let folder = workspace(&[server.url("/fw.zip")]);
        let mut first = command(folder.path(), &DOWNLOAD).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while server.requests().is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let second = download(folder.path(), &[]);
        assert!(first.wait().unwrap().success() && second.status.success(), "{}", stderr(&second));
        assert!(stderr(&second).contains("fetches the same image: waiting"), "{}", stderr(&second));
        if cfg!(target_os = "linux") {
            assert!(stderr(&second).contains(&format!("process {} (asmpatch)", first.id())), "{}", stderr(&second));
        }
        assert_eq!(server.requests().len(), 1);
    }

    #[test]
    fn a_full_disk_ends_in_a_clear_error_and_nothing_half_written() {
        let server = Server::start(|_, stream| {
            let bytes = image();
            send(stream, &format!("200 OK\r\nETag: \"v1\"\r\nContent-Length: {}", bytes.len()), &bytes);
        });
        let folder = workspace(&[]);
        // A limit on file size stands in for a full disk: the write fails in the same place. A full disk sends no
        // signal, so ignore the one that the limit sends.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; ulimit -f 20; exec \"$0\" \"$@\"", PROGRAM]).args(DOWNLOAD);
        command.current_dir(folder.path()).env("ASMPATCH_CACHE_DIR", "cache");
        let output = command.args(["--from", &server.url("/")]).output().unwrap();
        assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
        assert!(stderr(&output).contains("asmpatch::file::write"), "{}", stderr(&output));
        nothing_is_kept(&folder.path().join("cache"));
    }

    #[test]
    fn ctrl_c_ends_the_process_with_130_while_the_server_is_silent() {
        let (release, wait) = channel::<()>();
        let (begun, has_begun) = channel();
        let wait = Mutex::new((wait, begun));
        let server = Server::start(move |_, stream| {
            let wait = wait.lock().unwrap();
            send(stream, "200 OK\r\nContent-Length: 60000", &image()[..20_000]);
            wait.1.send(()).unwrap();
            let _ = wait.0.recv();
        });
        let folder = workspace(&[]);
        let mut command = command(folder.path(), &DOWNLOAD);
        let child = command.args(["--from", &server.url("/")]).stderr(Stdio::piped()).spawn().unwrap();
        has_begun.recv().unwrap();
        let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
        drop(release);
        nothing_is_kept(&folder.path().join("cache"));
        assert_eq!(files(folder.path()).len(), 2);
    }
}
