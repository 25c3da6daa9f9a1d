// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/watch/node_report.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "base/text.h"

namespace ddp::watch {
namespace {

using std::chrono::milliseconds;

constexpr char kSeparator = '\t';
constexpr std::string_view kNever = "-";
constexpr std::string_view kRank = "rank";
constexpr std::string_view kWait = "wait";
constexpr std::uint64_t kMaxNumber = std::uint64_t{1} << 40U;

std::string text_of(const std::optional<Clock::duration>& length) {
  if (!length) return std::string(kNever);
  return std::to_string(std::chrono::duration_cast<milliseconds>(*length).count());
}

std::string line_of(const RankReport& report, const RankFacts& facts) {
  std::string line(kRank);
  for (const auto& cell :
       {std::to_string(facts.rank), std::to_string(static_cast<int>(report.state)),
        text_of(report.quiet), text_of(report.stopped), text_of(report.uninterruptible),
        std::to_string(facts.task), std::to_string(facts.stopped),
        std::to_string(static_cast<int>(report.is_alone))}) {
    line += kSeparator + cell;
  }
  return line + '\n';
}

std::string line_of(const RankWait& wait) {
  return std::string(kWait) + kSeparator + std::to_string(wait.rank) + kSeparator +
         sanitize(wait.channel) + kSeparator + sanitize(wait.place) + '\n';
}

// Reads the cells of one line in turn; one that is missing is empty.
class Cells {
 public:
  explicit Cells(std::string_view line) : cells_(split(line, kSeparator)) {}

  std::string_view next() { return next_ < cells_.size() ? cells_[next_++] : std::string_view(); }
  // Fails if the cell is no number up to `most`.
  std::uint64_t number(std::uint64_t most = kMaxNumber) {
    const auto value = parse_decimal(next(), most);
    failed_ = failed_ || !value;
    return value.value_or(0);
  }
  std::optional<Clock::duration> length() {
    const bool is_never = next_ < cells_.size() && cells_[next_] == kNever;
    if (!is_never) return milliseconds(number());
    ++next_;
    return std::nullopt;
  }
  bool failed() const noexcept { return failed_; }

 private:
  std::vector<std::string_view> cells_;
  std::size_t next_ = 0;
  bool failed_ = false;
};

bool add_line(std::string_view line, const std::string& node, RanksReport& ranks) {
  Cells cells(line);
  const std::string_view kind = cells.next();
  const auto rank = static_cast<std::uint32_t>(cells.number(UINT32_MAX));
  if (kind == kWait) {
    std::string channel = sanitize(cells.next());
    ranks.waits.push_back({rank, std::move(channel), sanitize(cells.next())});
  } else if (kind == kRank) {
    RankReport report;
    report.state = static_cast<RankState>(cells.number(static_cast<int>(RankState::failed)));
    report.quiet = cells.length();
    report.stopped = cells.length();
    report.uninterruptible = cells.length();
    const auto task = static_cast<pid_t>(cells.number(INT32_MAX));
    const auto stopped = static_cast<pid_t>(cells.number(INT32_MAX));
    report.is_alone = cells.number(1) != 0;
    ranks.ranks.push_back(report);
    ranks.facts.push_back({rank, task, stopped, sanitize(node)});
  } else {
    return false;
  }
  return !cells.failed();
}

// For a text from which they are left out.
void add_unknown_waits(RanksReport& ranks) {
  for (std::size_t i = 0; i < ranks.ranks.size(); ++i) {
    const auto& report = ranks.ranks[i];
    if (report.state == RankState::running && report.quiet)
      ranks.waits.push_back({ranks.facts[i].rank, {}, {}});
  }
}

}  // namespace

void RanksReport::append(const RanksReport& others) {
  ranks.insert(ranks.end(), others.ranks.begin(), others.ranks.end());
  facts.insert(facts.end(), others.facts.begin(), others.facts.end());
  waits.insert(waits.end(), others.waits.begin(), others.waits.end());
}

bool RanksReport::sort() {
  std::vector<std::size_t> order(facts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [this](std::size_t i) { return facts[i].rank; });
  RanksReport sorted;
  for (const auto i : order) {
    sorted.ranks.push_back(ranks[i]);
    sorted.facts.push_back(std::move(facts[i]));
  }
  sorted.waits = std::move(waits);
  std::ranges::sort(sorted.waits, {}, &RankWait::rank);
  *this = std::move(sorted);
  return std::ranges::adjacent_find(facts, {}, &RankFacts::rank) == facts.end();
}

std::string to_text(const RanksReport& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.ranks.size(); ++i) {
    text += line_of(ranks.ranks[i], ranks.facts[i]);
  }
  std::string waits;
  for (const auto& wait : ranks.waits) waits += line_of(wait);
  return text.size() + waits.size() <= kMaxReportText ? text + waits : text;
}

std::optional<RanksReport> parse_report(std::string_view text, const std::string& node) {
  RanksReport ranks;
  while (!text.empty()) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos || !add_line(text.substr(0, end), node, ranks)) {
      return std::nullopt;
    }
    text.remove_prefix(end + 1);
  }
  if (ranks.waits.empty()) add_unknown_waits(ranks);
  return ranks;
}

}  // namespace ddp::watch
