// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/replica/loss_check.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ddp {

LossCheck::Result LossCheck::end_step(std::int64_t step) {
  Step ended{step, std::exchange(losses_, {})};
  if (late_) std::swap(ended, last_);
  return result_of(std::move(ended));
}

LossCheck::Result LossCheck::last() {
  return result_of(std::exchange(last_, {last_.number, {}}));
}

LossCheck::Result LossCheck::result_of(Step step) {
  const bool finite = std::all_of(step.losses.begin(), step.losses.end(),
                                  [](LateValue& loss) { return std::isfinite(loss.value()); });
  return {step.number, finite};
}

}  // namespace ddp
