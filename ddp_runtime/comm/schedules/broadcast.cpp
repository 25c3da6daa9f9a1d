// Broadcast by binomial tree (few steps) or by chain (every rank sends the data once), and the
// dissemination barrier.
#include <array>

#include "ddp_runtime/comm/schedules/schedules.h"

namespace ddp::comm::schedules {

// Ranks are renumbered so that the root is 0. In the round with distance d, ranks below d have the
// data and rank r sends it to r + d; rank r > 0 therefore receives from r minus its highest bit.
void broadcast_tree(Link& link, const Team& team, Buffer data, int root) {
  const int n = team.size();
  const int me = (team.me - root + n) % n;
  const auto actual = [&](int relative) { return team.at(relative + root); };
  int distance = 1;
  if (me != 0) {
    while (distance * 2 <= me) distance *= 2;
    link.receive(actual(me - distance), data.span());
    distance *= 2;
  }
  for (; distance < n; distance *= 2) {
    if (me < distance && me + distance < n) link.send(actual(me + distance), data.span());
  }
}

void broadcast_chain(Link& link, const Team& team, Buffer data, int root) {
  const int n = team.size();
  const int me = (team.me - root + n) % n;
  const int before = team.at(team.me - 1);
  const int after = team.at(team.me + 1);
  if (me == 0) return link.send(after, data.span());
  if (me == n - 1) return link.receive(before, data.span());
  link.relay(before, after, data.span());
}

void broadcast(Link& link, const Team& team, Buffer data, int root) {
  if (team.size() == 1 || data.count == 0) return;
  if (data.bytes() <= kSmallMessage) return broadcast_tree(link, team, data, root);
  broadcast_chain(link, team, data, root);
}

// In round k every rank signals the rank 2^k ahead and waits for the one 2^k behind: after log2 n
// rounds everybody has heard, directly or not, from everybody.
void barrier(Link& link, const Team& team) {
  const int n = team.size();
  const int me = team.me;
  std::array<std::byte, 1> out{};
  std::array<std::byte, 1> in{};
  for (int distance = 1; distance < n; distance *= 2) {
    link.exchange(team.at(me + distance), out, team.at(me - distance), in);
  }
}

}  // namespace ddp::comm::schedules
