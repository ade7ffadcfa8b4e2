// Early return on a failed absl::Status.
#pragma once

#define CALLBOARD_RETURN_IF_ERROR(expression)         \
  do {                                                \
    if (auto status_ = (expression); !status_.ok()) { \
      return status_;                                 \
    }                                                 \
  } while (false)

#define CALLBOARD_CONCAT_INNER(a, b) a##b
#define CALLBOARD_CONCAT(a, b) CALLBOARD_CONCAT_INNER(a, b)
#define CALLBOARD_ASSIGN_OR_RETURN(target, expression) \
  CALLBOARD_ASSIGN_OR_RETURN_IMPL(CALLBOARD_CONCAT(status_or_, __LINE__), target, expression)
#define CALLBOARD_ASSIGN_OR_RETURN_IMPL(result, target, expression) \
  auto result = (expression);                                       \
  if (!result.ok()) return result.status();                         \
  target = *std::move(result)
