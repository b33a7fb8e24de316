// The reader of a std::shared_mutex locks it exclusively without letting go.
// ripstop: verdict self-deadlock objects=table frames=main
// ripstop: hangs
// ripstop: epochs deadlock objects=table frames=main
#include <mutex>
#include <shared_mutex>

static std::shared_mutex table;

int main()
{
	std::shared_lock<std::shared_mutex> reading(table);
	std::unique_lock<std::shared_mutex> writing(table);
}
