// SPDX-License-Identifier: Apache-2.0
// The two transports for the bytes of a pair: a separate TCP connection, and MPI as the training
// uses it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ddp_runtime/check/net/measure/exchange.h"
#include "ddp_runtime/check/net/measure/tcp.h"
#include "ddp_runtime/comm/group/group.h"

namespace ddp::check {

// The length of an exchange's random secret, which the two ends receive with their commands.
inline constexpr std::size_t kTokenCharacters = 32;

// Connects to the peer's listener and sends the token. Throws NetError.
std::unique_ptr<PairLink> call_peer(const std::string& host, std::uint16_t port,
                                    const std::string& token, Deadline deadline,
                                    const Origin& origin = {});

// Waits for the connection that sends the token, and closes all others. Handles all connections at
// the same time, so unrelated programs that connect cannot delay the peer. Throws NetError.
std::unique_ptr<PairLink> await_peer(const Listener& listener, const std::string& token,
                                     Deadline deadline);

// Bytes that a TCP sender had to retransmit because they were lost, from the number of
// retransmitted segments and of those that the receiver reports as duplicates (D-SACK, RFC 2883).
// Duplicates were late, not lost: packets overtake each other on parallel paths and on several
// CPUs. The receiver cannot report all duplicates, so the result assumes a quarter more than
// reported.
std::int64_t bytes_lost(std::uint32_t sent_again, std::uint32_t arrived_twice,
                        std::uint32_t segment_bytes) noexcept;

// Sends messages through the group, which must outlive the link.
std::unique_ptr<PairLink> link_by_group(comm::Group& group, int peer_rank);

}  // namespace ddp::check
