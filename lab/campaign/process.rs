//! Runs one command in a shell, as a user would, and applies its faults.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use crate::campaign::history::{Blow, Moment, Output, Trouble};
use crate::campaign::watchdog::Watchdog;
use crate::pty;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With this status.
    Status(i32),
    /// By this signal.
    Signal(i32),
}

/// A process that has ended.
#[derive(Debug)]
pub struct Ended {
    pub end: End,
    /// The bytes read from its stdout or its terminal.
    pub out: String,
    /// The bytes read from its stderr.
    pub err: String,
    /// Signals sent to it.
    pub sent: Vec<i32>,
    /// Whether all of its stdout, and of its stderr, was read.
    pub has_all_out: bool,
    pub has_all_err: bool,
}

/// Quotes a word for a shell, whatever its bytes.
pub fn quoted(word: &OsStr) -> OsString {
    let mut text = vec![b'\''];
    for byte in word.as_bytes() {
        match byte {
            b'\'' => text.extend(br"'\''"),
            byte => text.push(*byte),
        }
    }
    text.push(b'\'');
    OsString::from_vec(text)
}

/// Environment of a command.
pub struct Place<'a> {
    /// The current folder, which contains the command's home.
    pub folder: &'a Path,
    /// The folder of the binary.
    pub bin: &'a Path,
    /// Value of `ASMPATCH_BACKUP_DIR`.
    pub backup_dir: Option<&'a OsStr>,
    /// Whether it runs without root's right to read everything, if the campaign is root's.
    pub lacks_rights: bool,
}

/// Runs a line in a shell.
pub fn run(line: &OsStr, place: Place<'_>, trouble: &Trouble, watchdog: &Watchdog) -> io::Result<Ended> {
    let Place { folder, bin, backup_dir, lacks_rights } = place;
    let mut script = OsString::new();
    if let Some(blocks) = trouble.file_limit {
        // Ignore the signal, which would end the process. A full disk only fails the write.
        script.push(format!("trap '' XFSZ; ulimit -f {blocks}; "));
    }
    let answers = if line.as_bytes().windows(6).any(|word| word == b" --fix") { agree } else { answer_first };
    script.push("exec ");
    let has_terminal = matches!(trouble.output, Output::Terminal { .. });
    if has_terminal {
        // A session of its own, so that closing the terminal hangs up the process.
        script.push("setsid -c ");
    }
    if lacks_rights && rustix::process::geteuid().is_root() {
        script.push("setpriv --bounding-set=-dac_override,-dac_read_search ");
    }
    script.push(line);
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).current_dir(folder).env_clear();
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    for (name, place) in [("HOME", "home"), ("XDG_DATA_HOME", "data"), ("XDG_CACHE_HOME", "cache"), ("TMPDIR", "tmp")] {
        command.env(name, folder.join(place));
    }
    if let Some(dir) = backup_dir {
        command.env("ASMPATCH_BACKUP_DIR", dir);
    }
    // qemu-user looks there for libraries of another architecture.
    if let Some(prefix) = env::var_os("QEMU_LD_PREFIX") {
        command.env("QEMU_LD_PREFIX", prefix);
    }
    // Nothing listens there.
    command.env("HTTPS_PROXY", "http://127.0.0.1:9").env("HTTP_PROXY", "http://127.0.0.1:9");
    command.env("NO_COLOR", "1").env("TERM", "xterm").env("ASMPATCH_TEST_SHORTEN_DEADLINES", "100");

    let (count, counted) = mpsc::channel();
    let readers: Vec<JoinHandle<Vec<u8>>>;
    let mut child;
    let mut complete = (true, true);
    match trouble.output {
        Output::Read => {
            child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
            let (out, err) = (child.stdout.take(), child.stderr.take());
            readers = vec![
                thread::spawn(move || read_all(out, Some(&count), None)),
                thread::spawn(move || read_all(err, None, None)),
            ];
        }
        Output::ClosedAfter(lines) => {
            let (reader, writer) = io::pipe()?;
            command.stdin(Stdio::null()).stderr(writer.try_clone()?).stdout(writer);
            let reader = (lines > 0).then_some(reader);
            child = command.spawn()?;
            drop(command);
            readers = vec![thread::spawn(move || read_all(reader, Some(&count), Some(lines)))];
            complete = (false, false);
        }
        Output::Full { stderr_too } => {
            let full = || OpenOptions::new().write(true).open("/dev/full");
            command.stdin(Stdio::null()).stdout(full()?);
            command.stderr(if stderr_too { full()?.into() } else { Stdio::piped() });
            child = command.spawn()?;
            let err = child.stderr.take();
            drop(count);
            readers = vec![thread::spawn(Vec::new), thread::spawn(move || read_all(err, None, None))];
            complete = (false, !stderr_too);
        }
        Output::Terminal { lost_after_micros } => {
            let (master, slave) = pty::open()?;
            command.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave);
            child = command.spawn()?;
            // Closes this process's copy of the terminal; only the child's remains.
            drop(command);
            let lost = lost_after_micros.map(|micros| Instant::now() + Duration::from_micros(micros));
            readers = vec![thread::spawn(move || sit_at(master, lost, &count, answers))];
            complete = (lost.is_none(), lost.is_none());
        }
    }
    let guard = watchdog.watch(child.id());
    let sent = trouble.blow.map_or_else(Vec::new, |blow| strike(&child, blow, &counted));
    let status = child.wait()?;
    if guard.has_bitten() {
        return Err(io::Error::other("it hangs: killed after five minutes"));
    }
    let mut texts = readers.into_iter().map(|reader| reader.join().unwrap_or_default());
    let mut text = || texts.next().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    Ok(Ended {
        end: match (status.code(), status.signal()) {
            (Some(code), _) => End::Status(code),
            (None, signal) => End::Signal(signal.unwrap_or_default()),
        },
        out: text(),
        err: text(),
        sent,
        has_all_out: complete.0,
        has_all_err: complete.1,
    })
}

fn strike(child: &Child, blow: Blow, lines: &Receiver<usize>) -> Vec<i32> {
    let (number, at, again) = match blow {
        Blow::Kill(at) => (Signal::KILL.as_raw(), at, None),
        Blow::Signal { signal, at, again_after_micros } => (signal.1, at, again_after_micros),
    };
    let micros = match at {
        Moment::Micros(micros) => micros,
        Moment::Lines(wanted, micros) => {
            while lines.recv().is_ok_and(|seen| seen < wanted) {}
            micros
        }
    };
    let mut sent = Vec::new();
    let mut send = || {
        // Nobody has waited for the process yet, so no other process can have its ID.
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
            && let Some(signal) = Signal::from_named_raw(number)
            && kill_process(pid, signal).is_ok()
        {
            sent.push(number);
        }
    };
    thread::sleep(Duration::from_micros(micros));
    send();
    if let Some(micros) = again {
        thread::sleep(Duration::from_micros(micros));
        send();
    }
    sent
}

/// Reads to the end, or closes after `close_after` lines. Sends the number of lines so far to `count`.
fn read_all(from: Option<impl Read>, count: Option<&Sender<usize>>, close_after: Option<usize>) -> Vec<u8> {
    let (mut text, mut lines) = (Vec::new(), 0);
    let Some(mut from) = from else { return text };
    let mut buffer = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        text.extend_from_slice(&buffer[..len]);
        lines += buffer[..len].iter().filter(|byte| **byte == b'\n').count();
        if let Some(count) = count {
            let _ = count.send(lines);
        }
        if close_after.is_some_and(|most| lines >= most) {
            break;
        }
    }
    text
}

/// The answer to the question with this number, which ends so: to the first one yes, to the offer of a self-test no.
fn answer_first(number: usize, end: &str) -> Option<&'static [u8]> {
    match (end, number) {
        (QUESTION, 0) => Some(b"y\n"),
        (QUESTION, _) => Some(b"n\n"),
        _ => None,
    }
}

/// Agrees to everything, takes the first of a choice, and goes on at a wait.
fn agree(_: usize, end: &str) -> Option<&'static [u8]> {
    match end {
        QUESTION => Some(b"y\n"),
        CHOICE => Some(b"1\n"),
        _ => Some(b"\n"),
    }
}

/// The ends of what waits for an answer.
const QUESTION: &str = "[y/N]";
const CHOICE: &str = "Enter for none]";
const WAIT: &str = "Ctrl-C ends)";

/// Reads the terminal, answers its questions, and closes the terminal when `lost` is reached.
fn sit_at(
    mut master: File,
    lost: Option<Instant>,
    count: &Sender<usize>,
    answers: fn(usize, &str) -> Option<&'static [u8]>,
) -> Vec<u8> {
    let mut text = Vec::new();
    let mut answered = 0;
    let mut buffer = [0; 4096];
    loop {
        let wait = lost.map(|lost| lost.saturating_duration_since(Instant::now()));
        if wait.is_some_and(|wait| wait.is_zero()) {
            return text;
        }
        let timeout = wait.map(|wait| Timespec {
            tv_sec: wait.as_secs().try_into().unwrap_or(1),
            tv_nsec: wait.subsec_nanos().into(),
        });
        match poll(&mut [PollFd::new(&master, PollFlags::IN)], timeout.as_ref()) {
            Ok(0) | Err(_) => continue,
            Ok(_) => {}
        }
        match master.read(&mut buffer) {
            Ok(len @ 1..) => text.extend_from_slice(&buffer[..len]),
            // The other end is closed everywhere.
            Ok(0) | Err(_) => return text,
        }
        let _ = count.send(text.iter().filter(|byte| **byte == b'\n').count());
        let shown = String::from_utf8_lossy(&text);
        let mut asked: Vec<_> = [QUESTION, CHOICE, WAIT].iter().flat_map(|end| shown.match_indices(end)).collect();
        asked.sort_unstable();
        for (number, (_, end)) in asked.iter().enumerate().skip(answered) {
            if let Some(answer) = answers(number, end) {
                let _ = master.write_all(answer);
            }
        }
        answered = asked.len();
    }
}
