// SPDX-License-Identifier: Apache-2.0
#include "parallel/session.hpp"

#include "core/error.hpp"
#include "core/kokkos_compat.hpp"
#include "core/shown.hpp"
#include "parallel/agree.hpp"
#include "parallel/collectives.hpp"
#include "parallel/device_binding.hpp"
#include "parallel/launch.hpp"
#include "parallel/mpi_support.hpp"
#include "parallel/node_board.hpp"
#include "parallel/threads.hpp"
#include "parallel/watchdog.hpp"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <map>
#include <optional>

#include <unistd.h>
#ifdef KOKKOS_ENABLE_OPENMP
#include <omp.h>
#endif

namespace bathys::parallel {
namespace {

constexpr std::size_t kLongestWarning = 1000;  // bytes

// What MPI may take to begin and to end, however short the watchdog's limit is.
constexpr double kLeastEdgeSeconds = 5;

const char* get_environment(const char* name) { return std::getenv(name); }

int world_size() {
  int size = 0;
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  return size;
}

// Owner of MPI itself, unless the process had initialized it before.
class MpiLibrary {
 public:
  MpiLibrary(const Launch& launch, bool single_process) {
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized == 0) {
      start(launch);
      ours_ = true;
    }
    MPI_Query_thread(&thread_level_);
    try {
      check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
      check_launch(launch, world_size(), single_process);
    } catch (...) {
      finish();
      throw;
    }
  }
  ~MpiLibrary() { finish(); }
  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;

  [[nodiscard]] bool may_call_from_threads() const { return thread_level_ >= MPI_THREAD_MULTIPLE; }

 private:
  static void start(const Launch& launch) {
    // Open MPI 4 takes SLURM_NODELIST for a start by srun and ends the process when no PMIx server answers; inside
    // salloc the variable is always there.  Without a server this process is alone, so the variable is hidden for the
    // time of the call.
    const char* const node_list = launch.has_pmix ? nullptr : std::getenv("SLURM_NODELIST");
    const std::optional<std::string> hidden =
        node_list == nullptr ? std::nullopt : std::optional<std::string>(node_list);
    if (hidden) ::unsetenv("SLURM_NODELIST");
    // A lone process shares its start-up data with nobody: kept on the heap, it needs no file, which a size limit or a
    // full disk would refuse before this program has a word to say.
    if (!launch.has_pmix) ::setenv("PMIX_MCA_gds", "hash", 0);
    int provided = 0;
    const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
    if (hidden) ::setenv("SLURM_NODELIST", hidden->c_str(), 1);
    require(code == MPI_SUCCESS, ExitCode::internal, "MPI_Init_thread failed with code {}", code);
  }

  void finish() noexcept {
    if (ours_) MPI_Finalize();
    ours_ = false;
  }

  bool ours_ = false;
  int thread_level_ = MPI_THREAD_SINGLE;
};

// Owner of Kokkos, unless the process had initialized it before.
class KokkosLibrary {
 public:
  KokkosLibrary(int threads, int device) {
    if (Kokkos::is_initialized()) return;
#ifdef KOKKOS_ENABLE_OPENMP
    // Kokkos opens a region of OMP_NUM_THREADS threads before it looks at its own argument: a variable that we ignored
    // or overruled would crash it there.
    omp_set_num_threads(threads);
#endif
    initialize_kokkos(threads, device);
    ours_ = true;
  }
  ~KokkosLibrary() {
    if (ours_) Kokkos::finalize();
  }
  KokkosLibrary(const KokkosLibrary&) = delete;
  KokkosLibrary& operator=(const KokkosLibrary&) = delete;

 private:
  bool ours_ = false;
};

// Ranks of this node with this rank's affinity mask; they would run on the same CPUs.
int count_mask_sharers(Collectives& world, int node, const std::vector<unsigned char>& mask) {
  const std::string mine = fmt::format("{} ", node) + std::string(mask.begin(), mask.end());
  const std::string count_of_rank = [&] {
    const std::vector<std::string> all = world.gather_host(mine, 0);
    std::map<std::string, int> count;
    for (const std::string& key : all) ++count[key];
    std::string counts;
    for (const std::string& key : all) counts += fmt::format("{} ", count[key]);
    return world.broadcast_host(counts, 0);
  }();
  std::size_t begin = 0;
  for (int r = 0; r < world.rank(); ++r) begin = count_of_rank.find(' ', begin) + 1;
  return std::atoi(count_of_rank.c_str() + begin);
}

ThreadChoice choose_threads_of_rank(Collectives& world, const NodeBoard& board, int requested,
                                    const std::vector<unsigned char>& mask) {
  CpuLimits limits;
  limits.mask_cpus = count_cpus(mask);
  limits.mask_sharers = count_mask_sharers(world, board.node(), mask);
  limits.cgroup_cpus = cgroup_cpus();
  return choose_threads(requested, limits, get_environment);
}

int choose_device_of_rank(Collectives& world, const NodeBoard& board) {
  if constexpr (kExecIsHost) return -1;
  DeviceName name;
  const int device = agree(world, [&] {
    const int chosen = choose_device(board.local_rank(), board.local_size(), count_devices());
    name = {board.host(), device_uuid(chosen)};
    return chosen;
  });
  std::vector<DeviceName> names;
  for (const std::string& text : world.gather_host(name.host + '\n' + name.uuid, 0)) {
    const std::size_t cut = text.find('\n');
    names.push_back({text.substr(0, cut), text.substr(cut + 1)});
  }
  agree(world, [&] { require_distinct_devices(names); });
  return device;
}

}  // namespace

// Destroyed in reverse order of the members.
struct Session::State {
  explicit State(const SessionOptions& options)
      : launch(checked_launch(options)), watchdog_s(options.watchdog_s), own_board(NodeBoard::alone(launch.rank)) {
    watch_edge("start", "MPI_Init", false);
    mpi.emplace(launch, options.single_process);
  }
  ~State() {
    if (watchdog) watch_edge("end", "MPI_Finalize", mpi->may_call_from_threads());
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Where MPI begins and ends the ranks see nothing of each other: each watches how long it waits for the others.
  // Hosts load the program each for itself, and a large job takes its connections down one by one.
  void watch_edge(const char* phase, const char* call, bool may_call_mpi) {
    own_board->mine().call.set(call);
    own_board->mine().n_calls = 1;
    edge.emplace(*own_board, watchdog_s > 0 ? std::max(watchdog_s, kLeastEdgeSeconds) : 0, may_call_mpi);
    edge->progress(phase, launch.one_host ? Pace::compute : Pace::files);
  }

  static Launch checked_launch(const SessionOptions& options) {
    Launch launch = read_launch(get_environment);
    check_launch(launch, 0, options.single_process);
    return launch;
  }

  void start(const SessionOptions& options) {
    board = NodeBoard::over_node();
    world = make_world_collectives({.board = board.get()});
    watchdog.emplace(*board, options.watchdog_s, mpi->may_call_from_threads());
    edge.reset();
    cpus = affinity_mask();  // before OpenMP binds this thread to some of them
    threads = choose_threads_of_rank(*world, *board, options.threads, cpus);
    device = choose_device_of_rank(*world, *board);
    kokkos.emplace(threads.threads, device);
    watchdog->progress("start");
  }

  Launch launch;
  double watchdog_s;
  std::unique_ptr<NodeBoard> own_board;
  std::optional<Watchdog> edge;
  std::optional<MpiLibrary> mpi;
  std::unique_ptr<NodeBoard> board;
  std::unique_ptr<Collectives> world;
  std::vector<unsigned char> cpus;
  ThreadChoice threads;
  int device = -1;
  std::optional<KokkosLibrary> kokkos;
  std::optional<Watchdog> watchdog;
  int exceptions_at_start = std::uncaught_exceptions();
};

namespace {

// The start-up line, one per job: ranks that differ in threads or their source are summed up by the extremes.
void announce(Session& session, const ThreadChoice& threads, const std::vector<std::string>& launch_warnings,
              bool may_call_from_threads) {
  Collectives& world = session.world();
  std::string warnings;
  for (const std::string& text : threads.warnings) warnings += text + '\n';
  for (const std::string& text : launch_warnings) warnings += text + '\n';
  const std::vector<std::string> hosts = world.gather_host(session.host(), 0);
  const std::vector<std::string> all_warnings = world.gather_host(warnings, 0);
  const std::int64_t fewest = world.all_reduce_host(std::int64_t{threads.threads}, Reduce::min);
  const std::int64_t most = world.all_reduce_host(std::int64_t{threads.threads}, Reduce::max);

  std::map<std::string, int> seen;
  for (std::size_t rank = 0; rank < all_warnings.size(); ++rank) {
    for (std::size_t begin = 0; begin < all_warnings[rank].size();) {
      const std::size_t end = all_warnings[rank].find('\n', begin);
      const std::string text = all_warnings[rank].substr(begin, end - begin);
      if (seen[text]++ == 0) log::warn("start", "rank={} text={}", rank, shown(text, kLongestWarning));
      begin = end + 1;
    }
  }
  if (!may_call_from_threads)
    log::warn("start", "text=\"this MPI library has no MPI_THREAD_MULTIPLE; the watchdog ends processes directly\"");
  std::string host_list;
  std::string last;
  for (const std::string& host : hosts) {
    if (host != last) host_list += (host_list.empty() ? "" : ",") + host;
    last = host;
  }
  log::info("start", "ranks={} nodes={} hosts={} threads={} threads_from=\"{}\" device={}", session.size(),
            session.n_nodes(), host_list,
            fewest == most ? fmt::format("{}", fewest) : fmt::format("{}..{}", fewest, most), threads.source,
            session.device() < 0 ? std::string("cpu") : fmt::format("gpu{}", session.device()));
}

}  // namespace

Session::Session(const SessionOptions& options) : state_(std::make_unique<State>(options)) {
  try {
    state_->start(options);
  } catch (...) {
    // The others may be waiting for this rank, also in MPI_Finalize.
    const Cause cause = cause_of(std::current_exception());
    if (world_size() == 1) throw;
    if (state_->board == nullptr || state_->board->claim_last_word()) log::cause(cause.text);
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(cause.code));
  }
  log::configure(options.log_level, rank());
  announce(*this, state_->threads, state_->launch.warnings, state_->mpi->may_call_from_threads());
}

Session::~Session() {
  const bool leaving_by_exception = std::uncaught_exceptions() > state_->exceptions_at_start;
  if (leaving_by_exception && size() > 1) MPI_Abort(MPI_COMM_WORLD, static_cast<int>(ExitCode::internal));
}

int Session::rank() const { return state_->world->rank(); }
int Session::size() const { return state_->world->size(); }
int Session::local_rank() const { return state_->board->local_rank(); }
int Session::local_size() const { return state_->board->local_size(); }
int Session::node() const { return state_->board->node(); }
int Session::n_nodes() const { return state_->board->n_nodes(); }
const std::string& Session::host() const { return state_->board->host(); }
int Session::threads() const { return state_->threads.threads; }
const std::vector<unsigned char>& Session::cpus() const { return state_->cpus; }
int Session::device() const { return state_->device; }
Collectives& Session::world() { return *state_->world; }
Watchdog& Session::watchdog() { return *state_->watchdog; }

void Session::abort(ExitCode code, std::string_view text) noexcept {
  if (state_->board->claim_last_word()) log::cause(text);
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  ::_exit(static_cast<int>(code));
}

int run_session(const SessionOptions& options, const std::function<ExitCode(Session&)>& body) {
  std::optional<Session> session;
  try {
    session.emplace(options);
  } catch (...) {
    // Before the ranks know each other, or agreed.  The tasks of a step that do not find each other are told once.
    const Cause cause = cause_of(std::current_exception());
    const char* const task = std::getenv("SLURM_PROCID");
    if (task == nullptr || std::string_view(task) == "0") log::cause(cause.text);
    return static_cast<int>(cause.code);
  }
  std::optional<Cause> cause;
  ExitCode code = ExitCode::ok;
  bool agreed = true;
  try {
    code = body(*session);
  } catch (const AgreedError& error) {
    cause = cause_of(std::current_exception());
  } catch (...) {
    cause = cause_of(std::current_exception());
    agreed = false;
  }
  if (cause) {
    if (!agreed && session->size() > 1) session->abort(cause->code, cause->text);
    if (session->rank() == 0) log::cause(cause->text);
    code = cause->code;
  }
  // Ranks that are done wait for the others here, where one that stands still is missed.
  session->watchdog().progress("end");
  session->world().barrier();
  return static_cast<int>(code);
}

}  // namespace bathys::parallel
