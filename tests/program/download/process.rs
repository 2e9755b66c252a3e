//! Downloads as a user sees them: exit statuses, and the files left behind.
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use crate::download::server::{Server, read_request, send_file};
use crate::download::{image, manifest, zip_of};
use crate::schemas;

const PROGRAM: &str = env!("CARGO_BIN_EXE_asmpatch");

/// A folder with `manifests/test.toml`, which names these mirrors.
fn workspace(urls: &[String]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("manifests")).unwrap();
    fs::write(folder.path().join("manifests/test.toml"), manifest(urls)).unwrap();
    folder
}

fn arguments(command: &mut Command, folder: &Path) {
    command.current_dir(folder).env_remove("ASMPATCH_CACHE_DIR").env("ASMPATCH_CONFIG", "").args([
        "download",
        "test",
        "--manifest-dir",
        "manifests",
        "--cache-dir",
        "cache",
    ]);
}

fn download(folder: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    arguments(&mut command, folder);
    command.args(more).output().unwrap()
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
    let output = download(folder.path(), &["--offline", "--json"]);
    let report = schemas::parse(&["download"], &output.stdout);
    assert_eq!((report["image"].as_str(), report["origin"].as_str()), (Some("test"), Some("cache")));
}

#[test]
fn an_out_that_holds_something_else_is_only_replaced_with_force() {
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
fn a_proxy_from_the_environment_carries_the_download_unless_no_proxy_names_the_host() {
    let proxy = Server::start(|request, stream| {
        assert_eq!(request.path, "mirror.invalid:80");
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        assert_eq!(read_request(stream).unwrap().path, "/fw.bin");
        send_file(stream, &image());
    });
    let folder = workspace(&[]);
    let through_proxy = |no_proxy: &str| {
        let mut command = Command::new(PROGRAM);
        arguments(&mut command, folder.path());
        command.env("HTTP_PROXY", proxy.url("")).env("NO_PROXY", no_proxy);
        command.args(["--from", "http://mirror.invalid/fw.bin"]).output().unwrap()
    };
    let output = through_proxy("invalid");
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("asmpatch::http::connect"), "{}", stderr(&output));
    assert_eq!(proxy.requests().len(), 0);
    let output = through_proxy("");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(proxy.requests().len(), 1);
}

#[test]
fn a_proxy_variable_that_is_no_address_ends_the_download_and_its_value_is_not_shown() {
    let folder = workspace(&[]);
    let mut command = Command::new(PROGRAM);
    arguments(&mut command, folder.path());
    command.env("HTTP_PROXY", "ftp://me:secret@proxy:21").env("NO_PROXY", "");
    let output = command.args(["--from", "http://mirror.invalid/fw.bin"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("asmpatch::http::proxy"), "{}", stderr(&output));
    assert!(stderr(&output).contains("HTTP_PROXY") && !stderr(&output).contains("secret"), "{}", stderr(&output));
}

// Unix only: limits and signals.
#[cfg(unix)]
mod unix {
    use std::process::Stdio;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::download::server::send;
    use crate::download::{files, nothing_is_kept};

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
        command.args(["-c", "trap '' XFSZ; ulimit -f 20; exec \"$0\" \"$@\"", PROGRAM]);
        arguments(&mut command, folder.path());
        let output = command.args(["--from", &server.url("/")]).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        assert!(stderr(&output).contains("asmpatch::http::write"), "{}", stderr(&output));
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
        let mut command = Command::new(PROGRAM);
        arguments(&mut command, folder.path());
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
