//! When a connection's requests arrived: before they were read, where whoever reads had no processor, or another one to serve.
//!
//! A deadline runs from then. The kernel takes it down for a socket that [asks](Arrivals::ask), which costs little, and is of use to those alone
//! whose requests have one.
//!
//! Invariants: as long as nobody asks nothing is known, and all is read as usual; of what came in parts the last one counts. The clock is the
//! machine's: where it is set in between, one request may be taken for older than it is.
//!
//! Source: `SO_TIMESTAMPNS` of socket(7). The kernel begins a moment after the first socket has asked.

use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
use rustix::net::{RecvFlags, recv};
use socket2::Socket;
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Of one connection.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    is_asked: bool,
    /// What was read last arrived then.
    last: Option<Instant>,
    /// Where the kernel writes that; nothing, as long as nobody asks.
    space: Vec<u8>,
}

impl Arrivals {
    /// What arrives from now on is asked after.
    pub fn ask(&mut self, socket: &Socket) {
        if !self.is_asked {
            // Where the kernel refuses it there is nothing to be read.
            self.is_asked = setsockopt(socket, ReceiveTimestampns, &true).is_ok();
            self.space = nix::cmsg_space!(TimeSpec);
        }
    }

    /// Reads what is there; waits for it, unless that is to be done `at_once`.
    pub fn receive(&mut self, socket: &Socket, room: &mut [u8], at_once: bool) -> io::Result<usize> {
        if !self.is_asked {
            let flags = if at_once { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
            return Ok(recv(socket, room, flags).map(|(_, count)| count)?);
        }
        let flags = if at_once { MsgFlags::MSG_DONTWAIT } else { MsgFlags::empty() };
        let mut parts = [IoSliceMut::new(room)];
        let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut self.space), flags)?;
        let arrived = message.cmsgs()?.find_map(|told| match told {
            ControlMessageOwned::ScmTimestampns(at) => Some(Duration::from(at)),
            _ => None,
        });
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last = arrived.and_then(|at| Instant::now().checked_sub(now.saturating_sub(at)));
        Ok(message.bytes)
    }

    /// For how long what was read last has been there; as far as is known, no time.
    pub fn waited(&self) -> Duration {
        self.last.map_or(Duration::ZERO, |at| at.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_has_been_there_for_long_is_known_to_have_been_once_that_is_asked_after() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = Socket::from(listener.accept().unwrap().0);
        let mut arrivals = Arrivals::default();
        let mut read_late = |arrivals: &mut Arrivals, at_once| {
            client.write_all(b"abc").unwrap();
            std::thread::sleep(20 * MS);
            let mut room = [0; 8];
            assert_eq!(arrivals.receive(&socket, &mut room, at_once).unwrap(), 3);
            assert_eq!(&room[..3], b"abc");
            arrivals.waited()
        };
        assert_eq!(read_late(&mut arrivals, false), Duration::ZERO);
        arrivals.ask(&socket);
        let begun = Instant::now();
        while read_late(&mut arrivals, true) < 20 * MS {
            assert!(begun.elapsed() < 10_000 * MS, "the kernel tells nothing");
        }
        let waited = read_late(&mut arrivals, false);
        assert!(waited >= 20 * MS && waited < 10_000 * MS, "{waited:?}");
        let nothing = arrivals.receive(&socket, &mut [0; 8], true).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }
}
