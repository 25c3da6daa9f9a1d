// The two ways in which the bytes of a pair travel: a TCP connection of our own, and MPI as the
// training will use it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ddp_runtime/check/net/measure/exchange.h"
#include "ddp_runtime/check/net/measure/tcp.h"
#include "ddp_runtime/comm/group.h"

namespace ddp::check {

// What the two ends of an exchange know and nobody else can guess: random, out of their commands.
inline constexpr std::size_t kTokenCharacters = 32;

// Connects to the peer's listener and shows the token. Throws NetError.
std::unique_ptr<PairLink> call_peer(const std::string& host, std::uint16_t port,
                                    const std::string& token, Deadline deadline,
                                    const Origin& origin = {});

// Waits for the peer, who shows the token, and drops all others. Strangers may connect, as many as
// like: all are listened to at once. Throws NetError.
std::unique_ptr<PairLink> await_peer(const Listener& listener, const std::string& token,
                                     Deadline deadline);

// Bytes that a TCP sender had to send again because they were lost, of segments sent again and
// those that the receiver says arrived twice (D-SACK, RFC 2883). The latter were late, not lost:
// packets overtake each other on several paths, and on several processors too. As the receiver
// cannot tell of all of them, a quarter more is forgiven.
std::int64_t bytes_lost(std::uint32_t sent_again, std::uint32_t arrived_twice,
                        std::uint32_t segment_bytes) noexcept;

// Messages of the group, which must outlive the link.
std::unique_ptr<PairLink> link_by_group(comm::Group& group, int peer_rank);

}  // namespace ddp::check
