//! Parser of /proc/self/mountinfo.

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// `major:minor`.
    pub device_number: String,
    /// The mount point, unescaped.
    pub place: String,
    /// The mounted device, unescaped: `/dev/sda1`.
    pub source: String,
}

/// Parses every line that has the format's fields; skips other lines.
pub(super) fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Mount> {
    let mut fields = line.split(' ');
    let device_number = fields.nth(2)?.to_owned();
    let place = unescaped(fields.nth(1)?);
    // Optional fields end with a dash; file system type and source follow.
    let source = unescaped(fields.skip_while(|field| *field != "-").nth(2)?);
    Some(Mount { device_number, place, source })
}

/// Undoes the escaping of space, tab, newline and backslash as three octal digits.
fn unescaped(field: &str) -> String {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] if byte == b'\\' => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_past_any_number_of_optional_ones() {
        let text = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n\
                    bad line\n\
                    37 35 8:1 / /a\\134b rw - ext4 /dev/sda1 rw";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 2);
        assert_eq!((mounts[0].place.as_str(), mounts[0].source.as_str()), ("/mnt2", "/dev/root"));
        assert_eq!(mounts[1].place, "/a\\b");
    }

    proptest::proptest! {
        #[test]
        fn parsing_never_panics(text: String) {
            let _ = parse(&text);
        }
    }
}
