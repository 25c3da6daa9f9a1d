// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks over one TCP connection. A message is a header, its tag and its
// length, and its bytes, which are sent from the caller's memory and received into it.
//
// A message is matched with the first receive of its tag. One that this rank has not asked for
// waits in the kernel, which makes its sender wait; if the rank waits for another message behind
// it, it is read into memory of the stream.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "ddp_runtime/comm/transport/transport.h"

namespace ddp::comm {

class TcpStream {
 public:
  struct Finished {
    Ticket ticket = 0;
    bool wrong_length = false;
  };

  // Messages wait until there is a connection. `received`: bytes that have been read from it.
  void attach(FileDescriptor socket, std::string received);
  bool attached() const noexcept { return static_cast<bool>(socket_); }

  // The memory must stay valid until the ticket is in the result of progress(), or forgotten.
  void send(Ticket ticket, int tag, std::span<const std::byte> data);
  void receive(Ticket ticket, int tag, std::span<std::byte> data);
  // Sends and receives what it can without waiting. The result is valid until the next call.
  std::span<const Finished> progress();
  // Uses the memory of this message no more, and if half of it has been moved, the connection.
  void forget(Ticket ticket) noexcept;

  // Whether the connection has ended, so that no message will finish any more.
  bool ended() const noexcept { return ended_; }
  int fd() const noexcept { return socket_.get(); }
  // What progress() waits for, as events of poll(2).
  short events() const noexcept;

 private:
  struct Header {
    std::uint64_t bytes = 0;
    std::int64_t tag = 0;
  };
  struct Outgoing {
    Ticket ticket = 0;
    Header header;
    std::span<const std::byte> data;
    std::size_t sent = 0;  // of header and data
  };
  struct Expected {
    Ticket ticket = 0;
    int tag = 0;
    std::span<std::byte> data;
  };
  struct Early {
    int tag = 0;
    std::vector<std::byte> data;
  };
  // The message that arrives now.
  struct Incoming {
    std::optional<Ticket> ticket;  // nullopt: it is the last of early_
    std::span<std::byte> data;
    std::size_t received = 0;
  };

  void flush();
  void fill();
  bool begin_message();
  void end_message();
  void start(const Header& header, const Expected& expected);
  bool read_more();
  std::size_t read(std::array<iovec, 2> parts);

  FileDescriptor socket_;
  std::string received_;  // before the connection was attached, and not used yet
  bool ended_ = false;
  std::deque<Outgoing> outbox_;
  std::deque<Expected> expected_;
  std::deque<Early> early_;
  Header header_;  // of the message that arrives, or of the next one
  std::size_t header_bytes_ = 0;
  std::optional<Incoming> incoming_;
  std::vector<Finished> finished_;
  std::vector<Finished> reported_;  // the result of progress()
};

}  // namespace ddp::comm
