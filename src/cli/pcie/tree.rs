//! Draws the tree as `lspci -tv` does.

use std::iter;

use asm2464_host::pcie::Survey;

/// Draws the functions. `name` returns the text for a function that is not a bridge with something behind it.
pub(super) fn draw(survey: &Survey, name: &dyn Fn(usize) -> String) -> String {
    let lines = after("-[0000:00]-", ' ', bus(survey, None, name));
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Draws what is on the bus behind a bridge.
fn bus(survey: &Survey, bridge: Option<usize>, name: &dyn Fn(usize) -> String) -> Vec<String> {
    let functions: Vec<usize> = survey.behind(bridge).collect();
    match functions[..] {
        [] => vec![String::new()],
        [only] => after("--", ' ', function(survey, only, name)),
        [.., last] => {
            let branch = |index| if index == last { ("\\-", ' ') } else { ("+-", '|') };
            let draw = |index| (branch(index), function(survey, index, name));
            functions.into_iter().map(draw).flat_map(|((start, bar), lines)| after(start, bar, lines)).collect()
        }
    }
}

fn function(survey: &Survey, index: usize, name: &dyn Fn(usize) -> String) -> Vec<String> {
    let function = &survey.functions[index];
    let place = format!("{:02x}.{}", function.at.device, function.at.function);
    let Some(buses) = function.buses().filter(|buses| buses.secondary != 0) else {
        return vec![format!("{place}  {}", name(index))];
    };
    let (first, last) = (buses.secondary, buses.subordinate);
    let range = if first == last { format!("{first:02x}") } else { format!("{first:02x}-{last:02x}") };
    after(&format!("{place}-[{range}]--"), ' ', bus(survey, Some(index), name))
}

/// Draws lines after `start`. Below it is space that begins with `bar`.
fn after(start: &str, bar: char, lines: Vec<String>) -> Vec<String> {
    let below = format!("{bar:<width$}", width = start.len());
    let starts = iter::once(start).chain(iter::repeat(&*below));
    starts.zip(lines).map(|(start, line)| format!("{start}{line}")).collect()
}

#[cfg(test)]
mod tests {
    use asm2464::Bdf;
    use asm2464_host::pcie::{Function, Link};

    use super::*;

    /// A function, with its secondary and subordinate bus if it is a bridge.
    fn function(at: Bdf, parent: Option<usize>, buses: Option<(u32, u32)>) -> Function {
        let mut header = [0; 16];
        if let Some((secondary, subordinate)) = buses {
            header[3] = 1 << 16;
            header[6] = subordinate << 16 | secondary << 8;
        }
        Function::parse(at, parent, &header)
    }

    #[test]
    fn buses_with_several_devices_are_drawn_below_each_other() {
        let functions = vec![
            function(Bdf::new(0, 0, 0), None, Some((1, 5))),
            function(Bdf::new(1, 0, 0), Some(0), Some((2, 5))),
            function(Bdf::new(2, 1, 0), Some(1), Some((3, 4))),
            function(Bdf::new(3, 0, 0), Some(2), Some((4, 4))),
            function(Bdf::new(4, 0, 0), Some(3), None),
            function(Bdf::new(4, 0, 1), Some(3), None),
            function(Bdf::new(2, 2, 0), Some(1), Some((5, 5))),
            function(Bdf::new(2, 31, 0), Some(1), None),
        ];
        let link = Link { ltssm: 0x78, is_up: true };
        let survey = Survey { link, functions, changes: Vec::new(), notes: Vec::new() };
        let drawn = draw(&survey, &|index| format!("+ function {index}"));
        let expected = "\
-[0000:00]---00.0-[01-05]----00.0-[02-05]--+-01.0-[03-04]----00.0-[04]--+-00.0  + function 4
                                           |                            \\-00.1  + function 5
                                           +-02.0-[05]--
                                           \\-1f.0  + function 7
";
        assert_eq!(drawn, expected);
    }
}
