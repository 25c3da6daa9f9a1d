// SPDX-License-Identifier: Apache-2.0
// The two transports for the bytes of a pair: a TCP connection of our own, and MPI as the training
// will use it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ddp_runtime/check/net/measure/exchange.h"
#include "ddp_runtime/check/net/measure/tcp.h"
#include "ddp_runtime/comm/group.h"

namespace ddp::check {

// The secret of an exchange, known to its two ends only: random, received with their commands.
inline constexpr std::size_t kTokenCharacters = 32;

// Connects to the peer's listener and sends the token. Throws NetError.
std::unique_ptr<PairLink> call_peer(const std::string& host, std::uint16_t port,
                                    const std::string& token, Deadline deadline,
                                    const Origin& origin = {});

// Waits for the peer, which sends the token, and drops all other connections. Any number of
// strangers may connect: all are listened to at the same time. Throws NetError.
std::unique_ptr<PairLink> await_peer(const Listener& listener, const std::string& token,
                                     Deadline deadline);

// Bytes that a TCP sender had to retransmit because they were lost, from the number of
// retransmitted segments and of those that the receiver reports as duplicates (D-SACK, RFC 2883).
// The latter were late, not lost: packets overtake each other on several paths, and on several CPUs
// too. As the receiver cannot report all of them, a quarter more is tolerated.
std::int64_t bytes_lost(std::uint32_t sent_again, std::uint32_t arrived_twice,
                        std::uint32_t segment_bytes) noexcept;

// Sends messages through the group, which must outlive the link.
std::unique_ptr<PairLink> link_by_group(comm::Group& group, int peer_rank);

}  // namespace ddp::check
