"""The pages in a real browser. What the checks of ``visit`` found is shown as what tests found themselves."""

import pytest

pytest.register_assert_rewrite("browser.visit")
