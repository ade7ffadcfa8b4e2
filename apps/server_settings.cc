// Implementation of callboardd's settings.
#include "apps/server_settings.h"

#include "core/runtime/status_macros.h"

namespace callboard::apps {
namespace {

template <class T>
void ReadCount(core::Settings& settings, std::string_view key, T* value, int64_t min) {
  auto number = static_cast<int64_t>(*value);
  settings.Read(key, &number, min, 1'000'000'000);
  *value = static_cast<T>(number);
}

template <class T>
void ReadSize(core::Settings& settings, std::string_view key, T* value) {
  auto bytes = static_cast<uint64_t>(*value);
  settings.ReadBytes(key, &bytes);
  *value = static_cast<T>(bytes);
}

}  // namespace

absl::Status ReadServerSettings(core::Settings& settings, ServerSettings* out) {
  server::Budgets& budgets = out->budgets;
  settings.Read("budgets.connect", &budgets.connect);
  settings.Read("budgets.heartbeat", &budgets.heartbeat);
  settings.Read("budgets.link_read_idle", &budgets.link_read_idle);
  settings.Read("budgets.quick_call", &budgets.quick_call);
  settings.Read("budgets.heavy_call", &budgets.heavy_call);
  settings.Read("budgets.call_max", &budgets.call_max);
  settings.Read("budgets.queue", &budgets.queue);
  settings.Read("budgets.upper_wait_margin", &budgets.upper_wait_margin);
  settings.Read("budgets.session_grace", &budgets.session_grace);
  settings.Read("budgets.session_idle", &budgets.session_idle);
  settings.Read("budgets.skill_relist", &budgets.skill_relist);
  settings.Read("budgets.receipt", &budgets.receipt);

  server::Limits& limits = out->limits;
  ReadCount(settings, "limits.agents_max", &limits.agents_max, 1);
  ReadCount(settings, "limits.sessions_max", &limits.sessions_max, 1);
  ReadCount(settings, "limits.streams_per_session_max", &limits.streams_per_session_max, 1);
  ReadCount(settings, "limits.calls_per_session_max", &limits.calls_per_session_max, 1);
  ReadCount(settings, "limits.open_executions_max", &limits.open_executions_max, 1);
  ReadCount(settings, "limits.receipts_max", &limits.receipts_max, 1);
  ReadCount(settings, "limits.replay_events_max", &limits.replay_events_max, 1);
  ReadSize(settings, "limits.replay_bytes_max", &limits.replay_bytes_max);
  ReadSize(settings, "limits.params_bytes_max", &limits.params_bytes_max);
  ReadSize(settings, "limits.result_bytes_max", &limits.result_bytes_max);

  settings.Read("bridge.heartbeat", &out->heartbeat);
  settings.Read("bridge.open_stream_after", &out->open_stream_after);
  settings.Read("bridge.retry", &out->retry);
  settings.Read("bridge.drain", &out->drain);
  settings.Read("bridge.allowed_hosts", &out->allowed_hosts);
  settings.Read("bridge.allowed_origins", &out->allowed_origins);

  CALLBOARD_RETURN_IF_ERROR(settings.Finish());
  return server::CheckOrder(budgets);
}

}  // namespace callboard::apps
