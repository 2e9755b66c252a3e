//! Draws the tree as `lspci -tv` does.

use crate::pcie::Survey;

/// Draws the functions. `name` returns the text for a function that is not a bridge with something behind it.
pub(super) fn draw(survey: &Survey, name: &dyn Fn(usize) -> String) -> String {
    let mut drawing = Drawing { survey, name, text: String::new(), line: "-[0000:00]-".to_owned() };
    drawing.bus(None);
    drawing.text
}

struct Drawing<'a> {
    survey: &'a Survey,
    name: &'a dyn Fn(usize) -> String,
    text: String,
    /// The line so far.
    line: String,
}

impl Drawing<'_> {
    /// Draws what is on the bus behind a bridge. Ends with the last line finished.
    fn bus(&mut self, bridge: Option<usize>) {
        let functions: Vec<usize> = self.survey.behind(bridge).collect();
        match functions[..] {
            [] => self.end_line(),
            [only] => {
                self.line.push_str("--");
                self.function(only);
            }
            [.., last] => {
                let column = self.line.chars().count();
                for index in functions.iter().copied() {
                    self.line.push_str(if index == last { "\\-" } else { "+-" });
                    self.function(index);
                    self.go_on(column);
                }
            }
        }
    }

    fn function(&mut self, index: usize) {
        let function = &self.survey.functions[index];
        let place = function.at;
        self.line.push_str(&format!("{:02x}.{}", place.device, place.function));
        match function.buses().filter(|buses| buses.secondary != 0) {
            Some(buses) => {
                let range = if buses.secondary == buses.subordinate {
                    format!("{:02x}", buses.secondary)
                } else {
                    format!("{:02x}-{:02x}", buses.secondary, buses.subordinate)
                };
                self.line.push_str(&format!("-[{range}]--"));
                self.bus(Some(index));
            }
            None => {
                let name = (self.name)(index);
                self.line.push_str(&format!("  {name}"));
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        self.text.push_str(self.line.trim_end());
        self.text.push('\n');
    }

    /// Starts the next line, up to `column`, with the bars of the buses that have more functions.
    fn go_on(&mut self, column: usize) {
        let bar = |drawn: char| if matches!(drawn, '+' | '|') { '|' } else { ' ' };
        self.line = self.line.chars().take(column).map(bar).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcie::{Bdf, Function, Link};

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
