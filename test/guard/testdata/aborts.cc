// Exceptions that nobody catches, and other ends by std::terminate; see aborts.c.
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

static bool wrong;

namespace app {
struct Plain { int code; };
struct Literal : std::exception { const char *what() const noexcept override { return "a\033[31m\n literal"; } };
struct Second : Plain, Literal {};
struct Own : virtual std::runtime_error {
	std::string text;
	explicit Own(const std::string &s) : std::runtime_error("not this"), text("a text that is longer than fits in a string: " + s) {}
	const char *what() const noexcept override { return text.c_str(); }
};
struct Hidden : private std::runtime_error { Hidden() : std::runtime_error("hidden") {} };
struct Busy : std::exception {
	const char *what() const noexcept override { std::cout << "asked" << std::endl; return "busy"; }
};
}

template <class E> static void thrown(const E &e)
{
	if (wrong)
		throw e;
}

// case runtime: exception=std::runtime_error what=it broke
static void runtime() { thrown(std::runtime_error("it broke")); }
// case library: exception=std::out_of_range what=basic_string::at: __n (which is 7) >= this->size() (which is 1)
static void library() { if (wrong) (void)std::string("a").at(7); }
// case memory: exception=std::bad_alloc what=std::bad_alloc
static void memory() { thrown(std::bad_alloc()); }
// case plain: exception=app::Plain
static void plain() { thrown(app::Plain{3}); }
// case number: exception=int
static void number() { thrown(3); }
// case pointer: exception=app::Literal*
static void pointer() { static app::Literal l; thrown(&l); }
// case second: exception=app::Second what=a\x1b[31m\n literal
static void second() { thrown(app::Second{}); }
// case own: exception=app::Own what=a text that is longer than fits in a string: x
static void own() { thrown(app::Own("x")); }
// case hidden: exception=app::Hidden
static void hidden() { thrown(app::Hidden()); }
// case busy: exception=app::Busy
static void busy() { thrown(app::Busy()); }
// case thread: exception=std::logic_error what=in a thread
static void thread() { std::thread([] { thrown(std::logic_error("in a thread")); }).join(); }
// case forbidden: exception=std::logic_error what=not here
static void forbidden() { []() noexcept { thrown(std::logic_error("not here")); }(); }
// case handled: exception=std::logic_error what=own handler
static void handled() { std::set_terminate([] { abort(); }); thrown(std::logic_error("own handler")); std::set_terminate(nullptr); }
// case again: exception=std::logic_error what=once more
static void again()
{
	std::exception_ptr p;
	try { throw std::logic_error("once more"); } catch (...) { p = std::current_exception(); }
	if (wrong)
		std::rethrow_exception(p);
}
// case caught:
static void caught() { try { thrown(std::logic_error("caught")); } catch (...) { abort(); } }
// case joinable:
static void joinable() { std::thread t([] { std::this_thread::yield(); }); if (!wrong) t.join(); }

static const struct { const char *name; void (*f)(); } cases[] = {{"runtime", runtime}, {"library", library}, {"memory", memory}, {"plain", plain}, {"number", number}, {"pointer", pointer}, {"second", second}, {"own", own}, {"hidden", hidden},
	{"busy", busy}, {"thread", thread}, {"forbidden", forbidden}, {"handled", handled}, {"again", again}, {"caught", caught}, {"joinable", joinable}};

int main(int, char **argv)
{
	bool clean = !strcmp(argv[1], "clean");
	wrong = !clean;
	for (auto &c : cases)
		if (clean || !strcmp(argv[1], c.name))
			c.f();
	std::cout << "ok\n";
}
