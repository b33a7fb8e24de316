// Classes with tables of virtual functions, and tables that are none.
struct first {
	virtual void one() {}
	virtual ~first() {}
};
struct second {
	virtual void two() = 0;
	virtual ~second() {}
};
struct both : first, second {
	void two() override {}
};
struct below : virtual both {
	int x = 0;
	void one() override {}
};
typedef void function();
static void some() {}
extern function *const no_table[] = {0, 0, some, some, some};
extern const char *const text[] = {"a", "b", "c"};

int main(int argc, char **)
{
	both b;
	below v;
	first *f = argc > 1 ? &b : &v;
	f->one();
	no_table[2]();
	return text[argc][0] == 0;
}
