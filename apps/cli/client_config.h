// What an AI client needs to reach Callboard: the exact entry for its configuration file.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace callboard::apps {

struct ClientConfig {
  std::string content;  // JSON or TOML, complete as a file
  std::string advice;   // for a person: which file, which command, what to know
};

// `program`: the path of this program, for clients that speak stdio only. InvalidArgument names the
// clients that are known.
absl::StatusOr<ClientConfig> MakeClientConfig(std::string_view client, std::string_view name,
                                              std::string_view url, std::string_view program);
std::string_view KnownClients();

}  // namespace callboard::apps
