// SPDX-License-Identifier: Apache-2.0
// Whether one group of runs is slower than another, or only differs by noise. No side effects.
//
// Note [Noise between runs]
// Two runs of one program differ by some percent: other nodes, other neighbors on the network. The
// steps of one run do not show that, so the noise is measured between runs. The figures of each
// group count as log-normal with the same relative spread; the interval of the ratio is that of
// Student's t test on their logarithms. An unusual run widens the interval, so it causes doubt, not
// a false alarm.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace ddp::report {

// How much larger the figures of group B are than those of A, as fractions of A's: 0.05 is 5 %.
struct Change {
  double estimate = 0;
  // The interval that contains the change in 98 of 100 comparisons.
  double least = 0;
  double most = 0;
  double noise = 0;  // relative standard deviation of one run
};

// The figures must be positive. nullopt if one is not, if a group is empty, or if there are fewer
// than four in all: two runs cannot show how large the noise is.
std::optional<Change> change_of(std::span<const double> a, std::span<const double> b);

enum class Judgment {
  fine,         // surely not more than the limit
  regression,   // an increase beyond noise, of more than the limit
  cannot_tell,  // the noise hides an increase of the limit, or is unknown
};

// `limit`: the largest increase that is accepted, as a fraction; not negative.
Judgment judge(const std::optional<Change>& change, double limit);

// "B is 5.2 % (3.9 % to 6.5 %) slower than A", "B and A cannot be distinguished: -1.0 % to 2.1 %".
// `more`, `less`: what B is if the figure has increased, or decreased: "slower", "faster".
std::string sentence_of(const Change& change, const std::string& more, const std::string& less);

}  // namespace ddp::report
