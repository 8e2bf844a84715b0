"""The world's shoppers: seeds fix everything, redundancy changes titles alone, clicks follow tastes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from saccade.core.errors import SaccadeError
from saccade.metrics.statistics import roc_auc
from saccade.world.shoppers import (
    FACTORS,
    SHOWN,
    WARM_UP,
    WORDS,
    ShopConfig,
    Shopping,
    go_shopping,
    item_statistics,
    make_shop,
)

SMALL = ShopConfig(items=60, users=200)


def same(one: Shopping, other: Shopping) -> bool:
    return all(np.array_equal(vars(one)[name], vars(other)[name]) for name in vars(one))


def test_a_seed_fixes_items_pictures_and_clicks() -> None:
    again = make_shop.__wrapped__(SMALL)
    shop = make_shop(SMALL)
    assert shop.titles == again.titles
    assert np.array_equal(shop.picture(7), again.picture(7))
    assert same(go_shopping(SMALL), go_shopping.__wrapped__(SMALL))
    other = replace(SMALL, seed=1)
    assert make_shop(other).titles != shop.titles
    assert not same(go_shopping(SMALL), go_shopping(other))


def test_redundancy_changes_titles_alone() -> None:
    shops = {share: make_shop(replace(SMALL, redundancy=share)) for share in (0.0, 0.5, 1.0)}
    for share, shop in shops.items():
        assert {len(title.split()) for title in shop.titles} == {7}
        assert same(go_shopping(shop.config), go_shopping(SMALL))
        assert np.array_equal(shop.picture(3), shops[0.0].picture(3))
        named = np.mean(
            [
                WORDS.get(value, value) in title.split()
                for n, title in enumerate(shop.titles)
                for value in (shop.value(factor, n) for factor in ("brand", "colour", "material", "kind"))
            ]
        )
        assert abs(named - share) < 0.08
        assert all(
            shop.value("style", n) in title and shop.value("use", n) in title for n, title in enumerate(shop.titles)
        )


def test_clicks_follow_the_probabilities_that_they_were_drawn_with() -> None:
    found = go_shopping(SMALL)
    for low, high in ((0.0, 0.2), (0.2, 0.5), (0.5, 1.0)):
        own = (found.probability >= low) & (found.probability < high)
        assert abs(found.clicked[own].mean() - found.probability[own].mean()) < 0.03
    assert roc_auc(found.probability[found.clicked], found.probability[~found.clicked]) > 0.9


def test_behaviours_have_a_kind_and_come_one_after_the_other() -> None:
    found = go_shopping(SMALL)
    assert (np.diff(found.time, axis=1) > 0).all()
    assert ((found.kind >= 2) == found.clicked).all()  # clicked, in the cart, bought
    counts = np.bincount(found.kind.ravel(), minlength=5)
    assert counts[0] > counts[2] > counts[3] > counts[4] > 0
    assert counts[1] > 0  # looked at


def test_users_are_split_and_none_is_in_two_splits() -> None:
    found = go_shopping(SMALL)
    parts = [found.users(split) for split in ("train", "dev", "test")]
    assert [len(part) for part in parts] == [160, 20, 20]
    assert len(np.unique(np.concatenate(parts))) == 200
    with pytest.raises(SaccadeError, match='no split "tset"; did you mean "test"'):
        found.users("tset")


def test_statistics_are_of_sessions_that_are_history_alone() -> None:
    found, numbers = go_shopping(SMALL), item_statistics(SMALL)
    assert numbers["exposures"].sum() == 200 * WARM_UP * SHOWN
    assert numbers["clicks"].sum() == found.clicked[:, : WARM_UP * SHOWN].sum()
    assert (numbers["price"] > 0).all()


def test_every_value_of_a_factor_is_on_sale() -> None:
    shop = make_shop(ShopConfig(items=400))
    assert all(set(shop.factors[name]) == set(range(len(values))) for name, (values, _) in FACTORS.items())


@pytest.mark.parametrize(
    ("wrong", "text"),
    [({"redundancy": 1.5}, "between 0 and 1"), ({"items": 0}, "at least 1"), ({"users": 3}, "10 or more")],
)
def test_settings_that_make_no_shop_are_told(wrong: dict[str, float], text: str) -> None:
    with pytest.raises(SaccadeError, match=text):
        ShopConfig(**wrong)  # type: ignore[arg-type]
