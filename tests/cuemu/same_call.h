/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef TESTS_CUEMU_SAME_CALL_H
#define TESTS_CUEMU_SAME_CALL_H

/*
 * Whether a function that we declare ourselves is called as a library's header
 * says: as many parameters, each of the size and kind (pointer or number) of
 * the other. C++, for lt_check.cc and nccl_check.cc.
 */

#include <type_traits>

template <class A, class B>
constexpr bool alike =
    sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;

template <class F, class G> struct same_call : std::false_type {
};
template <class R, class S, class... A, class... B>
struct same_call<R(A...), S(B...)> {
    template <class... C> struct list;
    template <class X, class Y> struct all : std::false_type {
    };
    template <class... X, class... Y>
    struct all<list<X...>, list<Y...>>
        : std::bool_constant<(alike<X, Y> && ... && true)> {
    };
    static constexpr bool count = sizeof...(A) == sizeof...(B);
    static constexpr bool value =
        alike<R, S> && std::conditional_t<count, all<list<A...>, list<B...>>,
                                          std::false_type>::value;
};

#define SAME_CALL(member, type, symbol)                     \
    static_assert(same_call<type, decltype(symbol)>::value, \
                  #symbol " is called with other arguments");

#define SAME(ours, theirs) static_assert((int)(ours) == (int)(theirs), #theirs)

#endif
