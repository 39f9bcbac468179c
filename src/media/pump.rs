//! Copies a stream and counts its bytes.

use std::io;

/// Copy `reader` to `writer`. `moved` gets every piece that was written.
pub fn pump(reader: &mut impl io::Read, writer: &mut impl io::Write, moved: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let mut chunk = vec![0; 256 << 10];
    loop {
        match reader.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                writer.write_all(&chunk[..n])?;
                moved(&chunk[..n]);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}
