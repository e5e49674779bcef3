// What the generated end of a kernel file says about its kernels: their parameters, read off the C++ types.
#pragma once

struct __half;
struct __half2;
struct __nv_bfloat16;
struct __nv_bfloat162;

namespace sprigs {

template <class T> struct Kind { static constexpr char kind = __is_enum(T) ? 'i' : 's', element = 0; };
#define SPRIGS_KIND(type, letter) \
    template <> struct Kind<type> { static constexpr char kind = letter, element = 0; };
SPRIGS_KIND(bool, 'b')
SPRIGS_KIND(char, 'i')
SPRIGS_KIND(signed char, 'i')
SPRIGS_KIND(short, 'i')
SPRIGS_KIND(int, 'i')
SPRIGS_KIND(long, 'i')
SPRIGS_KIND(long long, 'i')
SPRIGS_KIND(unsigned char, 'u')
SPRIGS_KIND(unsigned short, 'u')
SPRIGS_KIND(unsigned, 'u')
SPRIGS_KIND(unsigned long, 'u')
SPRIGS_KIND(unsigned long long, 'u')
SPRIGS_KIND(float, 'f')
SPRIGS_KIND(double, 'f')
SPRIGS_KIND(__half, 'h')
SPRIGS_KIND(__nv_bfloat16, 'B')
#define SPRIGS_VECTOR_KIND(type, letter) \
    template <> struct Kind<type> { static constexpr char kind = 'v', element = letter; };
#define SPRIGS_VECTOR_KINDS(name, letter)  \
    SPRIGS_VECTOR_KIND(name##1, letter)    \
    SPRIGS_VECTOR_KIND(name##2, letter)    \
    SPRIGS_VECTOR_KIND(name##3, letter)    \
    SPRIGS_VECTOR_KIND(name##4, letter)
SPRIGS_VECTOR_KINDS(char, 'i')
SPRIGS_VECTOR_KINDS(short, 'i')
SPRIGS_VECTOR_KINDS(int, 'i')
SPRIGS_VECTOR_KINDS(long, 'i')
SPRIGS_VECTOR_KINDS(longlong, 'i')
SPRIGS_VECTOR_KINDS(uchar, 'u')
SPRIGS_VECTOR_KINDS(ushort, 'u')
SPRIGS_VECTOR_KINDS(uint, 'u')
SPRIGS_VECTOR_KINDS(ulong, 'u')
SPRIGS_VECTOR_KINDS(ulonglong, 'u')
SPRIGS_VECTOR_KINDS(float, 'f')
SPRIGS_VECTOR_KINDS(double, 'f')
SPRIGS_VECTOR_KIND(__half2, 'h')
SPRIGS_VECTOR_KIND(__nv_bfloat162, 'B')

template <class T> constexpr auto vector_element(int) -> decltype(sizeof(T::x)) { return sizeof(T::x); }
template <class T> constexpr size vector_element(long) { return 0; }

template <class T> struct Plain { typedef T type; static constexpr bool constant = false; };
template <class T> struct Plain<const T> { typedef typename Plain<T>::type type; static constexpr bool constant = true; };
template <class T> struct Plain<volatile T> { typedef T type; static constexpr bool constant = false; };
template <class T> struct Plain<const volatile T> { typedef T type; static constexpr bool constant = true; };

template <class T> struct Describe {
    static constexpr Parameter parameter{sizeof(T), 0, Kind<T>::kind, Kind<T>::element, 0,
                                         vector_element<T>(0)};
};
template <class T> struct Describe<T*> {
    typedef typename Plain<T>::type P;
    static constexpr Parameter parameter{sizeof(T*), sizeof(P), Kind<P>::kind, Kind<P>::element,
                                         Plain<T>::constant, vector_element<P>(0)};
};
#define SPRIGS_DESCRIBE_VOID(type, constant) \
    template <> struct Describe<type*> {     \
        static constexpr Parameter parameter{sizeof(void*), 1, 'x', 0, constant, 0}; \
    };
SPRIGS_DESCRIBE_VOID(void, 0)
SPRIGS_DESCRIBE_VOID(const void, 1)

template <size... I> struct Indices {};
template <size N, size... I> struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <size... I> struct MakeIndices<0, I...> { typedef Indices<I...> type; };

template <auto function> struct Entry;
template <class... A, void (*function)(A...)>
struct Entry<function> {
    static constexpr u32 count = sizeof...(A);
    template <size... I>
    static SPRIGS_UNCHECKED void spread(void** arguments, Indices<I...>) {
        (void)arguments;
        function(*static_cast<A*>(arguments[I])...);
    }
    static SPRIGS_UNCHECKED void run(void** arguments) { spread(arguments, typename MakeIndices<sizeof...(A)>::type()); }
    static constexpr Parameter parameters[sizeof...(A) + 1] = {Describe<A>::parameter..., {}};
};

// The innermost element of an array type: what an index in a report counts.
template <class T> struct ElementOf {
    typedef typename Plain<T>::type type;
    static constexpr size bytes = sizeof(T);
};
template <class T, size N> struct ElementOf<T[N]> : ElementOf<T> {};

}  // namespace sprigs
