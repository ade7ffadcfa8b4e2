// Implementation of PlaneLinks.
#include "backend_agent/plane_links.h"

#include <algorithm>
#include <utility>

#include "backend_agent/plane_link.h"
#include "core/telemetry/log.h"

namespace callboard::agent {
namespace {

constexpr absl::Duration kBetweenFirstDials = absl::Milliseconds(200);

}  // namespace

PlaneLinks::PlaneLinks(core::EventLoop& loop, core::Random& random, LinkDialer& dialer,
                       const AgentConfig& config, CallJournal& journal, CallDesk& desk,
                       SeatFeed& seats)
    : loop_(loop),
      random_(random),
      dialer_(dialer),
      config_(config),
      journal_(journal),
      desk_(desk),
      seats_(seats),
      boot_id_(random.Hex(16)) {}

PlaneLinks::~PlaneLinks() = default;

void PlaneLinks::Start() {
  // One after another: the first may be welcomed before the next says what is linked.
  absl::Duration wait;
  for (const std::string& address : config_.control_planes) {
    if (IsKnown(address)) continue;
    Add(address, wait);
    wait += kBetweenFirstDials;
  }
}

void PlaneLinks::Stop(absl::Duration grace, absl::AnyInvocable<void()> done) {
  stopping_ = true;
  auto left = std::make_shared<size_t>(links_.size());
  auto last = std::make_shared<absl::AnyInvocable<void()>>(std::move(done));
  for (const auto& link : links_) {
    link->uplink().Stop(grace, [left, last] {
      if (--*left == 0) (*last)();
    });
  }
  if (links_.empty()) loop_.Post([last] { (*last)(); });
}

void PlaneLinks::AddTo(AgentGauges& gauges) const {
  gauges.links = links_.size();
  gauges.attaches = link_epoch_;
  gauges.ignored_items = ignored_items_;
  gauges.welcomes = welcomes_;
  gauges.links_resumed = resumed_;
  gauges.links_re_registered = re_registered_;
  gauges.link_drops = drops_;
  gauges.link_failures = failures_;
  for (const auto& link : links_) {
    const bool linked = link->uplink().linked();
    gauges.linked = gauges.linked || linked;
    gauges.link_up[link->uplink().address()] = linked;
  }
}

// ---- told by links ------------------------------------------------------------------------------

void PlaneLinks::FillHello(const PlaneLink& link, v1::Hello& hello) {
  hello.set_boot_id(boot_id_);
  hello.set_link_epoch(++link_epoch_);
  hello.set_journal_id(journal_.id());
  hello.add_features(kNoticeAcksFeature);
  hello.add_features(kSessionAsksFeature);
  for (const auto& other : links_) {
    if (other.get() != &link && other->uplink().linked()) {
      hello.add_linked_planes(other->uplink().control_plane_id());
    }
  }
}

void PlaneLinks::OnWelcome(PlaneLink& link) {
  ++welcomes_;
  const std::string& control_plane = link.uplink().control_plane_id();
  // Another opening may be on its way to the same control plane, which would take it for a newer
  // link with a newer inventory. It begins anew and says what is linked.
  for (const auto& other : links_) {
    const std::string& known = other->uplink().control_plane_id();
    if (other.get() != &link && other->uplink().opening() &&
        (known.empty() || known == control_plane)) {
      other->uplink().DialNow();
    }
  }
  ReviewSoon();
}

void PlaneLinks::ReviewSoon() {
  if (std::exchange(review_posted_, true)) return;
  loop_.Post(lifetime_.Wrap([this] {
    review_posted_ = false;
    if (!stopping_) Review();
  }));
}

// ---- which addresses, and which of them are one control plane
// ------------------------------------

void PlaneLinks::Review() {
  JoinAliases();
  PartAddresses();
  FollowNames();
}

void PlaneLinks::JoinAliases() {
  std::vector<PlaneLink*> without_address;
  for (const auto& link : links_) {
    const auto alias = link->TakeAlias();
    if (!alias) continue;
    PlaneLink* target = FindLinked(alias->control_plane_id, link.get());
    if (target == nullptr) continue;  // its link has ended meanwhile: dialled as any other
    Join(*target, alias->address);
    if (link->uplink().addresses().size() > 1) {
      link->uplink().RemoveAddress(alias->address);
    } else {
      without_address.push_back(link.get());
    }
  }
  // A control plane that let a second link in has ended the first.
  for (const auto& link : links_) {
    const std::string& control_plane = link->uplink().control_plane_id();
    PlaneLink* twin = link->uplink().linked() || control_plane.empty()
                          ? nullptr
                          : FindLinked(control_plane, link.get());
    if (twin == nullptr) continue;
    for (const std::string& address : link->uplink().addresses()) Join(*twin, address);
    without_address.push_back(link.get());
  }
  for (PlaneLink* link : without_address) Drop(*link);
}

void PlaneLinks::Join(PlaneLink& link, const std::string& address) {
  core::LogInfo("link_alias", {{"address", address},
                               {"control_plane", link.uplink().control_plane_id()},
                               {"linked_at", link.uplink().address()}});
  link.uplink().AddAddress(address);
}

void PlaneLinks::PartAddresses() {
  std::vector<std::string> parted;
  for (const auto& link : links_) {
    if (!link->TakeChanged()) continue;
    const std::vector<std::string> addresses = link->uplink().addresses();
    for (const std::string& address : addresses) {
      if (address == link->uplink().address()) continue;
      link->uplink().RemoveAddress(address);
      parted.push_back(address);
    }
  }
  for (const std::string& address : parted) Add(address);
}

void PlaneLinks::FollowNames() {
  std::vector<std::string> wanted = config_.control_planes;
  for (const auto& link : links_) {
    const auto& addresses = link->uplink().addresses();
    const bool counts = link->uplink().linked() || std::any_of(addresses.begin(), addresses.end(),
                                                               [this](const std::string& address) {
                                                                 return IsConfigured(address);
                                                               });
    if (counts) wanted.insert(wanted.end(), link->named().begin(), link->named().end());
  }
  const auto is_wanted = [&wanted](const std::string& address) {
    return std::find(wanted.begin(), wanted.end(), address) != wanted.end();
  };
  std::vector<PlaneLink*> unwanted;
  for (const auto& link : links_) {
    Uplink& uplink = link->uplink();
    const std::vector<std::string> addresses = uplink.addresses();
    for (const std::string& address : addresses) {
      if (is_wanted(address) || (uplink.linked() && address == uplink.address())) continue;
      core::LogInfo("address_forgotten", {{"address", address}});
      if (uplink.addresses().size() == 1) {
        unwanted.push_back(link.get());
      } else {
        uplink.RemoveAddress(address);
      }
    }
  }
  for (PlaneLink* link : unwanted) Drop(*link);
  for (const std::string& address : wanted) {
    if (!IsKnown(address)) Add(address);
  }
}

void PlaneLinks::Add(const std::string& address, absl::Duration wait) {
  size_t known = 0;
  for (const auto& link : links_) known += link->uplink().addresses().size();
  if (known >= config_.limits.addresses_max) {
    if (!std::exchange(told_full_, true)) {
      core::LogWarn("addresses_full",
                    {{"address", address}, {"addresses_max", config_.limits.addresses_max}});
    }
    return;
  }
  if (!IsConfigured(address)) core::LogInfo("address_learned", {{"address", address}});
  links_.push_back(std::make_unique<PlaneLink>(*this, address));
  links_.back()->uplink().Start(wait);
}

bool PlaneLinks::IsConfigured(const std::string& address) const {
  const auto& configured = config_.control_planes;
  return std::find(configured.begin(), configured.end(), address) != configured.end();
}

bool PlaneLinks::IsKnown(const std::string& address) const {
  return std::any_of(links_.begin(), links_.end(), [&](const auto& link) {
    const auto& addresses = link->uplink().addresses();
    return std::find(addresses.begin(), addresses.end(), address) != addresses.end();
  });
}

PlaneLink* PlaneLinks::FindLinked(const std::string& control_plane_id, const PlaneLink* but) const {
  for (const auto& link : links_) {
    if (link.get() != but && link->uplink().linked() &&
        link->uplink().control_plane_id() == control_plane_id) {
      return link.get();
    }
  }
  return nullptr;
}

void PlaneLinks::Drop(PlaneLink& link) {
  seats_.RemovePort(link);
  std::erase_if(links_, [&link](const auto& owned) { return owned.get() == &link; });
}

}  // namespace callboard::agent
