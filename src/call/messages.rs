//! Counting the messages of a response by their length prefixes, without decoding them.

/// Bytes before each message: a compression flag and a length (gRPC over HTTP/2).
const PREFIX: usize = 5;

/// Counts length-prefixed messages over any split into frames. A unary answer that is OK has
/// exactly one, whole.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    whole: usize,
    /// Bytes that the current message still lacks, once its prefix is read.
    lacks: Option<u32>,
    prefix: [u8; PREFIX],
    prefix_len: u8,
}

impl Messages {
    pub(crate) fn feed(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            match self.lacks {
                None => {
                    let read = usize::from(self.prefix_len);
                    let take = (PREFIX - read).min(data.len());
                    let (head, rest) = data.split_at(take);
                    self.prefix[read..read + take].copy_from_slice(head);
                    // At most five.
                    self.prefix_len += take as u8;
                    data = rest;
                    if read + take == PREFIX {
                        let [_, a, b, c, d] = self.prefix;
                        self.begin(u32::from_be_bytes([a, b, c, d]));
                    }
                }
                Some(lacks) => {
                    // What is longer than a length can say is longer than what is lacked.
                    let take = u32::try_from(data.len()).map_or(lacks, |len| len.min(lacks));
                    data = &data[take as usize..];
                    self.begin(lacks - take);
                }
            }
        }
    }

    fn begin(&mut self, lacks: u32) {
        self.prefix_len = 0;
        if lacks == 0 {
            self.whole += 1;
            self.lacks = None;
        } else {
            self.lacks = Some(lacks);
        }
    }

    /// Whether one has come whole.
    pub(crate) fn any(&self) -> bool {
        self.whole > 0
    }

    /// The number of messages, or `None` when the last is cut off.
    pub(crate) fn whole(&self) -> Option<usize> {
        (self.lacks.is_none() && self.prefix_len == 0).then_some(self.whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: usize) -> Vec<u8> {
        let mut message = vec![0];
        message.extend(u32::try_from(len).unwrap().to_be_bytes());
        message.extend(vec![7; len]);
        message
    }

    #[test]
    fn counts_over_every_split() {
        let stream = [message(0), message(3), message(300)].concat();
        for size in 1..stream.len() + 1 {
            let mut messages = Messages::default();
            for chunk in stream.chunks(size) {
                messages.feed(chunk);
            }
            assert_eq!(messages.whole(), Some(3), "chunks of {size}");
        }
    }

    #[test]
    fn a_cut_message_is_not_whole() {
        let stream = message(3);
        for len in 1..stream.len() {
            let mut messages = Messages::default();
            messages.feed(&stream[..len]);
            assert_eq!(messages.whole(), None, "{len} bytes");
        }
        assert_eq!(Messages::default().whole(), Some(0));
    }
}
