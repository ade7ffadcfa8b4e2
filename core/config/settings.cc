// Implementation of Settings.
#include "core/config/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>

#include "core/runtime/strings.h"

namespace callboard::core {
namespace {

void Flatten(const toml::table& table, const std::string& prefix,
             std::map<std::string, std::string>* out) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    if (const auto* inner = node.as_table()) {
      Flatten(*inner, name + ".", out);
    } else if (const auto text = node.value<std::string>()) {
      (*out)[name] = *text;
    } else if (const auto boolean = node.value_exact<bool>()) {
      (*out)[name] = *boolean ? "true" : "false";
    } else if (const auto number = node.value_exact<int64_t>()) {
      (*out)[name] = fmt::format("{}", *number);
    } else if (const auto fraction = node.value_exact<double>()) {
      (*out)[name] = fmt::format("{}", *fraction);
    } else {
      (*out)[name] = "<unsupported>";
    }
  }
}

bool ParseInteger(std::string_view text, int64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

void Settings::AddFile(const std::string& path) {
  try {
    std::map<std::string, std::string> flat;
    Flatten(toml::parse_file(path), "", &flat);
    for (auto& [key, value] : flat) entries_[key] = {std::move(value), path};
  } catch (const toml::parse_error& error) {
    const auto where = error.source().begin;
    errors_.push_back(fmt::format("{}, line {}, column {}: {}", path, where.line, where.column,
                                  error.description()));
  }
}

void Settings::AddEnvironment(std::string_view prefix, char** environment) {
  for (char** pair = environment; *pair != nullptr; ++pair) {
    const std::string_view text(*pair);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || !text.starts_with(prefix)) continue;
    std::string key;
    const std::string_view name = text.substr(prefix.size(), equals - prefix.size());
    for (size_t i = 0; i < name.size(); ++i) {
      if (name.substr(i, 2) == "__") {
        key.push_back('.');
        ++i;
      } else {
        key.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(name[i]))));
      }
    }
    // Names without a table are other programs' or the scripts' own (CALLBOARD_CACHE).
    if (key.find('.') == std::string::npos) continue;
    entries_[key] = {std::string(text.substr(equals + 1)), std::string(text.substr(0, equals))};
  }
}

void Settings::AddAssignment(std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    errors_.push_back(
        fmt::format("--set {}: expected key=value, as in --set budgets.queue=10m", assignment));
    return;
  }
  entries_[std::string(assignment.substr(0, equals))] = {std::string(assignment.substr(equals + 1)),
                                                         "--set"};
}

Settings::Entry* Settings::Take(std::string_view key) {
  known_.emplace_back(key);
  auto it = entries_.find(key);
  if (it == entries_.end()) return nullptr;
  it->second.used = true;
  return &it->second;
}

void Settings::Note(std::string_view key, std::string value) {
  const auto it = entries_.find(key);
  effective_.push_back({std::string(key), std::move(value),
                        it == entries_.end() ? std::string("default") : it->second.source});
}

void Settings::Complain(std::string_view key, const Entry& entry, std::string_view expected) {
  errors_.push_back(
      fmt::format("{} = \"{}\" ({}): expected {}", key, entry.value, entry.source, expected));
}

void Settings::Read(std::string_view key, std::string* value) {
  if (const Entry* entry = Take(key)) *value = entry->value;
  Note(key, *value);
}

void Settings::ReadChoice(std::string_view key, std::string* value,
                          std::span<const std::string_view> words) {
  const Entry* entry = Take(key);
  if (entry != nullptr && std::find(words.begin(), words.end(), entry->value) == words.end()) {
    return Complain(key, *entry, fmt::format("one of {}", fmt::join(words, ", ")));
  }
  if (entry != nullptr) *value = entry->value;
  Note(key, *value);
}

void Settings::Read(std::string_view key, bool* value) {
  const Entry* entry = Take(key);
  if (entry == nullptr) return Note(key, *value ? "true" : "false");
  if (entry->value == "true") {
    *value = true;
  } else if (entry->value == "false") {
    *value = false;
  } else {
    return Complain(key, *entry, "true or false");
  }
  Note(key, entry->value);
}

void Settings::Read(std::string_view key, int64_t* value, int64_t min, int64_t max) {
  const Entry* entry = Take(key);
  if (entry == nullptr) return Note(key, fmt::to_string(*value));
  int64_t number = 0;
  if (!ParseInteger(entry->value, &number) || number < min || number > max) {
    return Complain(key, *entry, fmt::format("an integer from {} to {}", min, max));
  }
  *value = number;
  Note(key, entry->value);
}

void Settings::Read(std::string_view key, absl::Duration* value) {
  const Entry* entry = Take(key);
  if (entry == nullptr) return Note(key, absl::FormatDuration(*value));
  absl::Duration duration;
  if (!absl::ParseDuration(ToAbsl(entry->value), &duration) || duration < absl::ZeroDuration()) {
    return Complain(key, *entry, "a duration such as \"250ms\", \"10s\", \"10m\" or \"8h\"");
  }
  *value = duration;
  Note(key, absl::FormatDuration(duration));
}

void Settings::Read(std::string_view key, std::vector<absl::Duration>* value) {
  const Entry* entry = Take(key);
  std::vector<absl::Duration> durations = *value;
  if (entry != nullptr) {
    durations.clear();
    std::string_view rest = entry->value;
    while (!rest.empty()) {
      const std::string_view part = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), part.size() + 1));
      const size_t begin = part.find_first_not_of(' ');
      if (begin == std::string_view::npos) continue;
      absl::Duration duration;
      const std::string_view trimmed = part.substr(begin, part.find_last_not_of(' ') + 1 - begin);
      if (!absl::ParseDuration(ToAbsl(trimmed), &duration) || duration <= absl::ZeroDuration()) {
        return Complain(key, *entry, "durations with commas between them, such as \"60s,100s\"");
      }
      durations.push_back(duration);
    }
  }
  std::string text;
  for (const absl::Duration duration : durations) {
    text.append(text.empty() ? "" : ",").append(absl::FormatDuration(duration));
  }
  *value = std::move(durations);
  Note(key, std::move(text));
}

void Settings::Derive(std::string key, std::string value, std::string source) {
  effective_.push_back({std::move(key), std::move(value), std::move(source)});
}

void Settings::ReadBytes(std::string_view key, uint64_t* value) {
  const Entry* entry = Take(key);
  if (entry == nullptr) return Note(key, fmt::to_string(*value));
  std::string_view text = entry->value;
  int shift = 0;
  for (const auto& [suffix, bits] : {std::pair{"KiB", 10}, {"MiB", 20}, {"GiB", 30}}) {
    if (text.ends_with(suffix)) {
      shift = bits;
      text.remove_suffix(3);
      break;
    }
  }
  int64_t number = 0;
  if (!ParseInteger(text, &number) || number < 0 || number > (INT64_MAX >> shift)) {
    return Complain(key, *entry, "a size such as \"65536\", \"64KiB\", \"1MiB\" or \"2GiB\"");
  }
  *value = static_cast<uint64_t>(number) << shift;
  Note(key, fmt::to_string(*value));
}

void Settings::ReadTable(std::string_view table, std::map<std::string, std::string>* value) {
  const std::string prefix = fmt::format("{}.", table);
  for (auto& [key, entry] : entries_) {
    if (!key.starts_with(prefix)) continue;
    entry.used = true;
    (*value)[key.substr(prefix.size())] = entry.value;
    Note(key, entry.value);
  }
}

absl::Status Settings::Finish(std::initializer_list<absl::Status> also) const {
  std::vector<std::string> errors = errors_;
  for (const absl::Status& status : also) {
    if (!status.ok()) errors.emplace_back(Message(status));
  }
  for (const auto& [key, entry] : entries_) {
    if (entry.used) continue;
    std::vector<std::string> same_table;
    const std::string table = key.substr(0, key.find('.'));
    for (const auto& known : known_) {
      if (known.substr(0, known.find('.')) == table) same_table.push_back(known);
    }
    errors.push_back(
        fmt::format("{} = \"{}\" ({}): no such setting; {}", key, entry.value, entry.source,
                    same_table.empty() ? std::string("see docs/operations.md")
                                       : fmt::format("there are {}", fmt::join(same_table, ", "))));
  }
  if (errors.empty()) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument, fmt::format("{}", fmt::join(errors, "\n")));
}

}  // namespace callboard::core
