//! Hangs a machine as a kernel hangs: its processor goes round in a circle and takes no interrupts. Done from outside,
//! by what QEMU has for debuggers (the remote protocol of GDB).

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    thread::sleep,
    time::Duration,
};

/// `cli`, and a jump back to it.
const LOOP: &str = "faebfd";

/// Hang the machine that listens on a socket.
pub fn hang(socket: &Path) {
    // The system may be in a program at the moment, where the instruction is not allowed. Mostly it is idle.
    for _ in 0..100 {
        let mut debugger = Debugger::attach(socket);
        let at = debugger.instruction_pointer();
        let in_kernel = at >> 63 == 1;
        if in_kernel {
            assert_eq!(debugger.ask(&format!("M{at:x},3:{LOOP}")), "OK", "the instruction can be written");
        }
        assert_eq!(debugger.ask("D"), "OK", "the machine goes on");
        if in_kernel {
            return;
        }
        sleep(Duration::from_millis(100));
    }
    panic!("the machine is never in its kernel");
}

struct Debugger {
    stream: UnixStream,
}

impl Debugger {
    /// The machine stops.
    fn attach(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("QEMU listens for a debugger");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket can have a time limit");
        Debugger { stream }
    }

    fn instruction_pointer(&mut self) -> u64 {
        let registers = self.ask("g");
        // After sixteen others of eight bytes, the lowest byte first, two digits each.
        let number = u64::from_str_radix(&registers[256..272], 16).expect("registers are hexadecimal numbers");
        number.swap_bytes()
    }

    /// One packet there and one back.
    fn ask(&mut self, text: &str) -> String {
        let sum = text.bytes().fold(0u8, u8::wrapping_add);
        write!(self.stream, "${text}#{sum:02x}").expect("QEMU reads");
        loop {
            let answer = self.packet();
            // That the machine has stopped is told unasked.
            if !answer.starts_with('T') {
                return answer;
            }
        }
    }

    /// `$`, the text, `#`, a sum of two digits. Before it may come a `+`, for what QEMU has received.
    fn packet(&mut self) -> String {
        let mut packet = Vec::new();
        while packet.iter().rev().nth(2) != Some(&b'#') {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).expect("QEMU answers");
            packet.push(byte[0]);
        }
        self.stream.write_all(b"+").expect("QEMU reads");
        let packet = String::from_utf8(packet).expect("packets are ASCII");
        let (_, text) = packet.split_once('$').expect("a packet begins with $");
        text[..text.len() - 3].to_owned()
    }
}
